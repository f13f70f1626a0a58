"""Why an event cannot be learned: every reason that a dead letter, or a refusal of ``POST /feedback``, can have.

The code on the left stands in letters, metrics and replies, so it never changes. A FeedbackError carries it beside a
message of its own, which says what was got and what to do.
"""

from __future__ import annotations

REASONS = {
    "not_json": "the payload is not JSON (or not MessagePack, if its header says so)",
    "invalid": "a field is missing, of the wrong type or out of range",
    "oversize": "the event is larger than the limit",
    "empty_list": "a list that must name items is empty",
    "nothing_compared": "the event compares no two items, such as a page on which everything was clicked",
    "too_many": "the event stands for more comparisons than the limit",
    "unknown_model": "no model of this name, and no pattern that matches it, is configured",
    "not_accepted": "the model's learner does not learn from this kind of feedback",
    "unknown_item": "an item is not in the catalogue, and the event brings no vectors for it",
    "unknown_task": "the model has no task of this name",
    "missing_modality": "an inline item lacks a modality",
    "dimension": "an inline vector has the wrong dimension",
    "not_finite": "a value is NaN or infinite",
    "diverged": "learning from it would make the model's numbers overflow",
    "user_share": "the user sent as large a share of the newest events as max_share_a_user allows",
    "too_many_models": "the model would be new, and its pattern has as many models as it may have",
    "wrong_partition": "the model's events live in another partition",
}
