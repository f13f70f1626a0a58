"""SETNET Table 5: searching by one vector for each set, and ordering the best, or all, element by element."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.page import Block, Claim, Grid, spread
from benchmarks.papers.setnet.encoders import STOPS, TRAINED, Case, averaging, by_cosines, encoder, learned, singles
from benchmarks.papers.setnet.galleries import (
    LARGEST,
    PLACES,
    World,
    distinct,
    gallery,
    judgements,
    measured,
    parted,
    roles,
    world,
)
from omdml.comparisons import Judgement
from omdml.evaluate import ndcg
from omdml.kernels.retrieval.matching import greedy_matches
from omdml.metrics import SetMetric
from omdml.workers.node.galleries.gallery import AGGREGATE, ELEMENTS, VECTOR, Query
from omdml.workers.node.galleries.set_gallery import SetGallery

Array = NDArray[Any]
TITLE = "SETNET Table 5: re-ranking"
MATHS = "8"
DATA = ("leaves100",)
SEEDS = range(5)
TIMED = True
UNITS = [{"seed": seed} for seed in SEEDS]
# CLASSES to train on, and SETS in the gallery. A class that is asked for is in SHARE sets on average.
CLASSES, SETS, SHARE = 60, 30_000, 120
# The paper's pictures in thousands, by number of elements. More than five count as five.
FACES = {2: 113, 3: 43, 4: 19, 5: 19}
# Those with somebody who may be asked for, in thousands, by how many of their elements may be.
CELEBRITIES = {1: 88, 2: 89, 3: 12, 4: 3, 5: 1}
# QUERIES for each number of classes in ASKED.
QUERIES, ASKED = 30, (2, 3)
# Ways to search, each with the number of sets that are ordered again.
WAYS = [*itertools.product((VECTOR, AGGREGATE), (0, 100, 1_000, 2_000)), (ELEMENTS, 0)]
FEW = [(VECTOR, 0), (VECTOR, 2_000), (ELEMENTS, 0)]
MEAN, SETNET, SERVED = "mean pooling, learned", "SetNet", "SetNet, as served"
# What is taken from b if learned scores are matched; it was not tuned.
LOWERS = (0.0, 4.0)
# With these the logistic function is nearly linear.
LINEAR = {"w": np.array(0.1), "b": np.array(0.0)}
PAPER = ("nDCG@10", "nDCG@30", "times faster")
PUBLISHED = {
    (MEAN, VECTOR): ("51.0", "50.6", "57.5"),
    (MEAN, "vector, best 2,000"): ("78.5", "76.2", "22.7"),
    (MEAN, AGGREGATE): ("50.6", "50.6", "635"),
    (MEAN, "aggregate, best 2,000"): ("78.5", "76.2", "212"),
    (SETNET, VECTOR): ("59.1", "59.4", "57.5"),
    (SETNET, "vector, best 100"): ("76.5", "70.1", "48.8"),
    (SETNET, "vector, best 1,000"): ("84.2", "80.0", "31.8"),
    (SETNET, "vector, best 2,000"): ("85.3", "81.4", "22.7"),
    (SETNET, AGGREGATE): ("58.7", "59.4", "635"),
    (SETNET, "aggregate, best 100"): ("76.4", "70.1", "212"),
    (SETNET, "aggregate, best 1,000"): ("84.1", "80.0", "63.5"),
    (SETNET, "aggregate, best 2,000"): ("85.3", "81.4", "35.3"),
    (SETNET, ELEMENTS): ("85.4", "81.7", "1"),
}
ABOUT = f"""
The paper (5.3) searches 549,000 pictures, of which 355,000 hold nobody who is asked for. A query asks for two or three
persons. A picture has one vector. It is scored for each person, and the scores are added up (*vector*), or it is scored
once, for one vector of all persons (*aggregate*). Or all faces are matched (*elements*). Or the vectors find the best
pictures, and only the faces of so many of them are matched (such as *vector, best 100*): this is re-ranking.

**Not the paper's data:** leaves, descriptors and learning are those of the section above, with {CLASSES} classes to
train on. The gallery has {SETS:,} sets. They have as many elements as the paper's pictures have faces (its Table 1;
more than five count as five). The first sets hold elements of classes that queries ask for, as many in each set as in
the paper (Table 2). Once each of these classes is in {SHARE} sets on average, as each person is in the paper, the other
sets hold strangers only. There are only {len(ASKED) * QUERIES} queries for each seed, half of two classes and half of
three, with one example of each. There are few different leaves, so sets repeat them.

Searches are those of a node (`workers/node/galleries/set_gallery.py`), for the 30 best, timed on one core, one query
after another. "Times faster" compares with matching all elements by the same vectors. Scores are cosines, added up.
Only in the last three rows, "as served", vectors have SetNet's own scores, as a node serves them: a logistic function
of each cosine, with an offset b. Elements are always matched by cosines (`SetMetric.match`). The second table shows
what the logistic function would give there, with b as learned and with b lower by {LOWERS[-1]:g}, a number that nobody
tuned. eta and the number of judgements are chosen on validation classes. Seeds 0 to {len(SEEDS) - 1}.

The paper's rows differ from ours in three ways. They are all whitened (+ W), and ours are not. The paper's generalised
mean stands beside our mean pooling. The paper matches elements, also to re-rank, by features of the network that was
never trained on sets (Baseline + W), and we match them by the vectors of the same row, as sets of one. The paper's row
*aggregate, best 2,000* is 212 times faster with mean pooling, but 35.3 times with SetNet. It does not say why; 212 is
also its figure for SetNet and the best 100 sets.
"""


class Album(NamedTuple):
    """Sets of rows; queries, rows too; how many of a query's classes are in each set (Q, n)."""

    sets: list[Array]
    queries: list[Array]
    relevance: Array


def album(given: World, draw: np.random.Generator) -> Album:
    """Sets as in the paper's Tables 1 and 2, and queries for classes that lie together in some set."""
    (distractors, asked), (examples, lying) = roles(given.test), parted(given, given.test, draw)
    sizes = numbers(FACES, draw)
    holding = np.minimum(numbers(CELEBRITIES, draw), sizes)
    holding[np.cumsum(holding) > SHARE * len(asked)] = 0
    classes = distinct(asked, (SETS, LARGEST), draw)
    own, rest = lying.drawn(classes, draw), lying.drawn(distinct(distractors, (SETS, LARGEST), draw), draw)
    sets = [np.concatenate([o[:a], r[: n - a]]) for o, r, a, n in zip(own, rest, holding, sizes, strict=True)]
    held = np.where(np.arange(LARGEST) < holding[:, None], classes, -1)
    sources = [draw.choice(np.flatnonzero(holding >= count), QUERIES, replace=False) for count in ASKED]
    queried = [classes[row, :count] for count, rows in zip(ASKED, sources, strict=True) for row in rows]
    relevance = np.array([np.isin(held, some).sum(axis=1) for some in queried])
    return Album(sets, [examples.drawn(some, draw) for some in queried], relevance)


def numbers(shares: Mapping[int, int], draw: np.random.Generator) -> Array:
    """A number for each set, drawn with these shares."""
    return draw.choice(list(shares), SETS, p=np.array(list(shares.values())) / sum(shares.values()))


def run(seed: int) -> dict[str, Any]:
    """NDCG and milliseconds a query of every way to search, by metric."""
    given, draw = world("leaves100", CLASSES, seed), np.random.default_rng(seed)
    case = Case(*(gallery(given, part, draw) for part in (given.validation, given.test)))
    judged, searched = judgements(given, STOPS[-1], TRAINED, draw), album(given, draw)
    averaged, netvlad = (fitted(case, given, judged, init, seed) for init in (averaging(given.x.shape[1]), "kmeans"))
    metrics = {
        MEAN: rescored(averaged, LINEAR),
        SETNET: rescored(netvlad, LINEAR),
        SERVED: netvlad,
    }
    results = {
        name: answered(SetGallery(metric, {"x": given.x}, searched.sets), searched, FEW if name == SERVED else WAYS)
        for name, metric in metrics.items()
    }
    return {"searched": results, "matched": [matched(given, netvlad, searched, lower) for lower in LOWERS]}


def fitted(case: Case, given: World, judged: Sequence[Judgement], init: Any, seed: int) -> SetMetric:
    """The learned metric that validation chooses, not whitened."""
    metrics = learned(given, judged, init, seed)
    metrics.pop("")
    chosen = case.best({setting: encoder(given, metric) for setting, metric in metrics.items()}, by_cosines)["chosen"]
    return SetMetric(metrics[chosen].dims, metrics[chosen].parameters)


def rescored(metric: SetMetric, logistic: Mapping[str, Array]) -> SetMetric:
    """The same vectors under another w and b; cosines added up if these are LINEAR."""
    return SetMetric(metric.dims, {**metric.parameters, **logistic})


def matched(given: World, metric: SetMetric, searched: Album, lower: float) -> list[float]:
    """NDCG in % at PLACES, all elements matched by learned scores whose b is lower by ``lower``."""
    lowered = rescored(metric, {"b": metric.parameters["b"] - lower})
    encode, begins = encoder(given, metric), np.cumsum([0, *map(len, searched.sets)])
    elements = singles(encode, np.concatenate(searched.sets))
    scores = [
        greedy_matches(lowered.similarities(singles(encode, rows), elements), begins) for rows in searched.queries
    ]
    return measured(searched.relevance, np.array(scores))


def answered(index: SetGallery, searched: Album, ways: Sequence[tuple[str, int]]) -> dict[str, dict[str, float]]:
    """NDCG in % at 10 and at 30, and milliseconds a query, of these ways to search."""
    result, none = {}, np.empty(0, np.int64)
    # They are made here, so that the first query does not take longer than the others.
    assert len(index.elements)
    for by, count in ways:
        queries = [Query(none, {"x": index.features["x"][rows]}, by, count) for rows in searched.queries]
        # The first call compiles.
        index.nearest(queries[0], PLACES[-1])
        began = time.process_time()
        hits = [index.nearest(query, PLACES[-1]).rows for query in queries]
        spent = 1000 * (time.process_time() - began) / len(queries)
        result[named(by, count)] = {"ms": spent, **graded(searched.relevance, hits)}
    return result


def graded(relevance: Array, hits: Sequence[Array]) -> dict[str, float]:
    """NDCG in % of what was found, by place; all other sets lie behind it."""
    order = [np.concatenate([rows, np.delete(np.arange(SETS), rows)]) for rows in hits]
    ranked = np.take_along_axis(relevance, np.array(order), axis=1)
    return {str(place): 100 * float(ndcg(ranked, place).mean()) for place in PLACES}


def named(by: str, count: int) -> str:
    """The name of a way to search."""
    return f"{by}, best {count:,}" if count else by


# By vectors, search and measure: the values of all seeds.
Outcomes = dict[str, dict[str, dict[str, Array]]]


def section(results: list[dict[str, Any]]) -> list[Block]:
    """Table 5: our figures beside the paper's, and claims about them."""
    outcomes = {
        name: {
            way: {key: np.array([result["searched"][name][way][key] for result in results]) for key in measures}
            for way, measures in ways.items()
        }
        for name, ways in results[0]["searched"].items()
    }
    matched = np.array([result["matched"] for result in results])  # (seeds, LOWERS, PLACES)
    rows = []
    for name, ways in outcomes.items():
        for way, figures in ways.items():
            faster = (ways[ELEMENTS]["ms"] / figures["ms"]).mean()
            ours = [spread(figures[key], 1) for key in ("10", "30", "ms")]
            rows.append([name, way, *ours, f"{faster:.1f}", *PUBLISHED.get((name, way), ["", "", ""])])
    columns = ["vectors", "search", "nDCG@10", "nDCG@30", "ms for a query", "times faster"]
    published = [f"paper: {column}" for column in PAPER]
    return [
        ABOUT,
        Grid("Searches, and how many sets are ranked again", [*columns, *published], rows),
        Grid(
            "Matching all elements by SetNet's vectors, by the scores that are added up",
            ["scores", *columns[2:4]],
            added(outcomes, matched),
        ),
        *verdict(outcomes, matched),
    ]


def added(outcomes: Outcomes, matched: Array) -> list[list[str]]:
    """A row for cosines, and one for the learned scores with each b."""
    names = ["cosines", "learned scores", *(f"learned scores, b lower by {lower:g}" for lower in LOWERS[1:])]
    cosines = np.transpose([outcomes[SETNET][ELEMENTS][str(place)] for place in PLACES])
    return [
        [name, *(spread(values, 1) for values in scores.T)]
        for name, scores in zip(names, (cosines, *matched.swapaxes(0, 1)), strict=True)
    ]


def verdict(outcomes: Outcomes, matched: Array) -> list[Claim]:
    """The claims of this section, each with whether the run confirms it."""
    setnet, mean, served = (outcomes[name] for name in (SETNET, MEAN, SERVED))
    learned_scores, lowered = matched[:, :, 0].mean(axis=0)

    def of(ways: dict[str, dict[str, Array]], way: str, key: str = "10") -> float:
        return float(ways[way][key].mean())

    def faster(way: str) -> float:
        return float((setnet[ELEMENTS]["ms"] / setnet[way]["ms"]).mean())

    few, more, most = (named(VECTOR, count) for count in (100, 1_000, 2_000))
    rising = [of(setnet, way) for way in (VECTOR, few, more, most, ELEMENTS)]
    gaps = [of(vectors, ELEMENTS) - of(vectors, most) for vectors in (setnet, mean)]
    return [
        Claim(
            f"""Re-ranking recovers what one vector loses, as in the paper. nDCG@10 is {rising[0]:.1f} by SetNet's
            vectors. It is {rising[1]:.1f}, {rising[2]:.1f} and {rising[3]:.1f} if 100, 1,000 and 2,000 sets are
            ranked again, and {rising[4]:.1f} by all elements (paper: 59.1, 76.5, 84.2, 85.3, 85.4).""",
            rising[0] < rising[1] < rising[2] and abs(gaps[0]) < 1,
            agrees=True,
        ),
        Claim(
            f"""Re-ranking so many is {faster(few):.0f}, {faster(more):.0f} and {faster(most):.0f} times faster than
            matching all elements (paper: 49, 32, 23). The fewer sets a gallery has, the less there is to save: the
            paper has 18 times as many.""",
            faster(few) > faster(most) > 3,
            agrees=True,
        ),
        Claim(
            f"""One vector for the whole query costs little ({of(setnet, AGGREGATE):.1f} instead of
            {of(setnet, VECTOR):.1f}; paper: 58.7 instead of 59.1) and is faster ({faster(AGGREGATE):.0f} times
            instead of {faster(VECTOR):.0f} times).""",
            abs(of(setnet, AGGREGATE) - of(setnet, VECTOR)) < 2 and faster(AGGREGATE) > faster(VECTOR),
            agrees=True,
        ),
        Claim(
            f"""Mean pooling stays behind, re-ranked or not, as in the paper ({of(mean, VECTOR):.1f}, and
            {of(mean, most):.1f} with 2,000 sets; paper: 51.0 and 78.5). The paper's reason is that too many right sets
            are not among its first 2,000. Here that costs {gaps[1]:.1f} points (SetNet: {gaps[0]:.1f}). The rest of the
            difference is in the vectors of elements, which are worse: matching all elements has
            {of(mean, ELEMENTS):.1f} by them, and {of(setnet, ELEMENTS):.1f} by SetNet's.""",
            gaps[1] > gaps[0] and of(mean, ELEMENTS) < of(setnet, ELEMENTS),
            agrees=True,
        ),
        Claim(
            f"""A node always re-ranks by cosines, whatever scores it found the sets by. SetNet's learned scores
            have {of(served, VECTOR):.1f} by themselves; if 2,000 of their sets are ranked again, it is
            {of(served, most):.1f}. Matching all elements gives the same as for "SetNet", because the cosines are
            the same.""",
            of(served, ELEMENTS) == of(setnet, ELEMENTS) and of(served, most) > of(served, VECTOR),
        ),
        Claim(
            f"""Elements are not matched by the learned scores, because b is too high for single elements: these are
            closer to each other than to sets, and there are many strangers. Matching all elements has
            {learned_scores:.1f} by learned scores and {of(setnet, ELEMENTS):.1f} by cosines. Cosines are not the
            best that matching can do, either: with a b lower by {LOWERS[-1]:g} it has {lowered:.1f}. But the paper
            does not learn a b of its own for elements.""",
            learned_scores < of(setnet, ELEMENTS) < lowered,
        ),
    ]
