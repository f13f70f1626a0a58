"""What each field of the node's HTTP interface means, in one or two sentences.

A name that means the same everywhere stands under ``EVERYWHERE``. Fields whose types bring a description of their own
are not here, such as those of events (omdml/feedback.py).
"""

from __future__ import annotations

from typing import Any

MODEL = "The model to search with. It may be left out if the node is configured with exactly one."
CATALOGUE_OF = "The model whose items are meant. It may be left out if the node is configured with exactly one."
SECONDS = "in seconds since the epoch (1970-01-01 UTC)"

EVERYWHERE = {
    "id": "The item's id",
    "type": "The kind of event",
    "model": "The model",
    "version": "The version of the model: how many comparisons it has learned",
    "serial": "A number that rises each time another version goes live, even at a rollback",
    "k": "How many items to answer, at least 1, and at most 10,000 together with `offset`",
    "offset": "How many of the closest items to skip: page 3 of 10 items has offset 20",
    "task": 'The task whose sense of "similar" counts, if the model has several tasks',
    "pinned": "Whether this version stays live until it is unpinned",
    "took_s": "Time that the search took in the node, in seconds",
    "items": "The items, closest first",
    "parent": "The model that answered, because `model` has no version yet. `version` is 0 then.",
    "parent_version": "The version of `parent` that answered",
    "candidates_version": "If the items to compare come from an index in a vector database, or from the gallery "
    "of an older version while that of this one is embedded: the version of this index or gallery. Near items may be "
    "missing.",
    "at": "The time, " + SECONDS,
    "features": 'Raw vectors by modality, such as `{"color": [0.9, 0.1]}`',
    "attributes": "All attributes of the item. They replace those that it had. Without this field it keeps them.",
}
MEANINGS: dict[str, dict[str, str]] = {
    "ItemSearch": {"id": "The item to search with. It is not in the answer.", "model": MODEL},
    "OneQuery": {
        "id": "An item to search with. It is not in the answer.",
        "ids": "Several items, at most 1,000: the search is for their mean.",
    },
    "Search": {
        "id": "An item to search with. It is not in the answer.",
        "ids": "Several items, at most 1,000: the search is for their mean.",
        "model": MODEL,
        "exclude": "Ids that must not be in the answer",
        "filter": 'Conditions on attributes that each item must meet, such as `{"price": {"lt": 20}}` '
        "(deploy/SEARCH.md has the language)",
        "fields": "Names of the attributes that each item of the answer should have",
        "queries": "1 to 100 queries in one request, instead of `id`, `ids`, `features`, `text` and `picture`. Their "
        "number times `k` plus `offset` is at most 10,000, and at most one has a picture.",
        "by": "How a model of sets compares: one vector for each set (`vector`), one for the query too (`aggregate`), "
        "or all elements (`elements`). Without it, `vector`.",
        "rerank": "For a model of sets: how many of the best sets to order again by their elements, 1 to 10,000. Not "
        "with `elements`.",
    },
    "ModelsSince": {
        "since": f"Freshness is measured over versions that went live after this time, {SECONDS}. A `live_since` of an "
        "earlier answer is such a time."
    },
    "History": {"last": "How many of the newest lines to answer, 1 to 10,000"},
    "OfVersion": {"version": "A version that the store still keeps; without it, the live one"},
    "Items": {
        "model": CATALOGUE_OF,
        "id": "Only the item with this id. It comes with all of its attributes, unless `fields` names some",
        "fields": "Names of the attributes that `values` should have, with commas between them, as in `price,brand`",
        "find": "Only items whose id or label holds this text; capital letters make no difference",
        "offset": "How many of these items to skip",
        "limit": "How many of them to answer, 1 to 1,000",
    },
    "OfModel": {"model": CATALOGUE_OF},
    "ItemPicture": {"model": CATALOGUE_OF},
    "ItemAtlas": {
        "first": "The row that the atlas begins with: the first number of a cell of `GET /items`",
        "model": CATALOGUE_OF,
    },
    "Events": {"model": "The model to follow; without it, all"},
    "Compare": {
        "id": "The item to search with",
        "k": "How many of the closest items of each version to compare, 1 to 1,000",
    },
    "Letters": {
        "reason": "Only letters with this reason, such as `unknown_item`",
        "model": "Only letters of this model",
        "open": "true: only letters that were neither sent again nor dismissed",
        "last": "How many of the newest letters to answer, 1 to 1,000",
    },
    "LetterAt": {
        "position": "The position of the letter, as `GET /letters` shows it: PARTITION/OFFSET or "
        "TOPIC-ID/PARTITION/OFFSET"
    },
    "Answer": {"interleaved": "If an experiment mixed two rankings into this answer: which experiment"},
    "Answers": {"answers": "A list of items for each query, in the order of the queries"},
    "Found": {"attributes": "The attributes that `fields` asked for, as far as the item has them"},
    "Interleaved": {
        "experiment": "The name of the experiment",
        "search": "The id of this answer for `POST /clicks`",
        "against": "The model whose ranking was mixed in",
        "against_version": "The version of `against` that answered",
    },
    "Comparison": {
        "id": "The item that was searched with",
        "before": "What the earlier version answers",
        "after": "What the later version answers",
        "moved": "The items of either answer whose rank differs",
    },
    "Moved": {
        "before": "Its rank before, counted from 1; null beyond 1,000",
        "after": "Its rank after, counted from 1; null beyond 1,000",
        "rose": "By how many places it rose; below 0 if it fell; null if one of the two ranks is",
    },
    "Move": {
        "version": "The version to make live. Without it, a rollback takes the one before, and a pin the live one. "
        "`unpin` takes no version.",
        "reason": "Why; the history shows it",
        "seen": "The highest `serial` of the history that you have seen. If somebody has moved the model since then, "
        "nothing is moved, and the answer is 409 `moved`.",
    },
    "Step": {
        "number": "Counts the steps of this node, from 1",
        "what": "`model_live` (the first one), `new_version`, `rolled_back`, `pinned`, `unpinned`, or `model_deleted` "
        "(the model answers as it begins, or not at all)",
        "at": "When this node began to answer with this version, " + SECONDS,
        "freshness_s": "The age, at this step, of the oldest event that answers take into account only from this step "
        "on, in seconds; null if unknown",
        "stages": "How `freshness_s` is made up, in seconds, by the stage on the way to the node; null if unknown",
        "newest_event_at": "Time of the newest event that the version has learned, " + SECONDS + "; null if unknown",
        "figures": "What the learner reports about itself, by name",
        "weights": "The weight of each modality, or of each expert",
    },
    "Remark": {
        "what": "`withheld` (a version did not go live) or `drift` (mistakes became more frequent)",
        "version": "The version that was withheld, or that was live",
        "at": f"When the store noted it, {SECONDS}",
        "reason": "Why, in a sentence",
    },
    "Judgement": {
        "decision": "`allowed`, `withheld`, `taken back` (an earlier version is live again) or `not judged`",
        "at": f"When the decision took effect, {SECONDS}; null if nothing was judged",
        "reason": "Why the version is not live; empty unless it was withheld or taken back",
        "version": "The version that was judged; null if nothing was compared",
        "reference": "The earlier version that it was compared with",
        "margin": "By how much `version` orders held-out events better (above 0) or worse (below 0) than `reference`",
        "doubt": "The margin of error of `margin`: a smaller difference is not sure",
        "queries": "The number of queries that `margin` is the mean of",
        "sentence": "All of this in plain words",
    },
    "Change": {
        "text": 'Words by column of text, such as `{"title": "red shirt"}`. They stand for the vectors that the '
        "catalogue makes of them.",
        "picture": "A picture in base64. It stands for the vectors that the catalogue makes of it.",
        "delete": "true: delete the item. Only `id` may come with it.",
    },
    "ItemsChanged": {
        "position": "How many changes the catalogue has had. `GET /items` says how many of them a node answers with.",
        "put": "How many items were put",
        "attributes": "How many existing items got other attributes",
        "deleted": "How many items were deleted",
        "unknown": "Ids to delete that did not exist, for example because an earlier request deleted them",
    },
    "Settle": {
        "positions": "The positions of the letters, as `GET /letters` shows them",
        "reason": "Why; it goes into the node's log",
    },
    "Clicks": {
        "search": "The id from the answer's `interleaved.search`",
        "ids": "The items that were clicked",
    },
    "Clicked": {"counted": "How many of these clicks were new, and so were counted"},
    "Outcome": {
        "name": "The name of the experiment",
        "against": "The model that it is compared with",
        "against_version": "The version of `against` that it is compared with; null: whatever is live",
        "searched_share": "The share of sessions whose searches are answered by both rankings, mixed (interleaved)",
        "kept": "true: the counts are kept in a file, so they outlive this node's process",
        "counts": "What was counted",
        "better": "`first` (the model's own ranking), `second` (the other one), or null if neither is surely better",
        "share": "Of the searches that one of the rankings won, the share of the second; null if there are none",
        "low": "The lower end of the 95 % confidence interval of `share`",
        "high": "The upper end of that interval",
        "confidence": "How sure it is that the two rankings differ, 0 to 1",
    },
    "Counts": {
        "since": "When counting began, " + SECONDS,
        "searches": "Searches that were interleaved",
        "failed": "Searches that the model answered alone, because the other side could not answer",
        "first": "Searches that the model's own ranking won",
        "second": "Searches that the other ranking won",
        "ties": "Searches with clicks that neither won",
        "clicks": "Clicks on items of the first ranking, and of the second",
    },
    "Error": {"message": "What happened, what was expected, and what to do"},
}


def explain_fields(components: dict[str, Any]) -> None:
    """Give each field of the schemas a description, unless its type brought one."""
    for name, part in components.items():
        for field, option in part.get("properties", {}).items():
            meaning = MEANINGS.get(name, {}).get(field) or EVERYWHERE.get(field)
            if meaning:
                option.setdefault("description", meaning)
