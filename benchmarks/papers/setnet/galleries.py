"""Sets of elements whose classes no model has seen, queries of two classes, and sets to learn from (SETNET 5.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks.quality import data_folder
from omdml import LOMDML
from omdml.builders import from_labels
from omdml.comparisons import Judgement
from omdml.evaluate import ndcg, rank_by_score

Array = NDArray[Any]
# Classes to train on, to choose on, and to test.
CLASSES = {"leaves100": (60, 12, 28), "yaleb": (18, 7, 13)}
# Number of triplets from which descriptors are learned.
TRIPLETS = 10_000
SETS, LARGEST = 1_000, 5
# At most PAIRS pairs of classes are asked for, each with EXAMPLES pairs of elements that stand for it.
PAIRS, EXAMPLES = 100, 3
# Numbers of relevant and of irrelevant sets in a judgement.
RELEVANT, IRRELEVANT = 2, 6
PLACES = (10, 30)


class World(NamedTuple):
    """Descriptors (n, D) of all items, centred on those to train on, labels, and classes by part."""

    x: Array
    labels: Array
    train: Array
    validation: Array
    test: Array

    @property
    def known(self) -> Array:
        """The rows of all items whose class is one to train on."""
        return np.flatnonzero(np.isin(self.labels, self.train))


class Items(NamedTuple):
    """Rows by class: those of class c are ``sizes[c]`` from ``begins[c]`` on."""

    rows: Array
    begins: Array
    sizes: Array

    def drawn(self, classes: Array, draw: np.random.Generator) -> Array:
        """A row of each class, in the shape of ``classes``."""
        return self.rows[self.begins[classes] + draw.integers(0, self.sizes[classes])]


class Gallery(NamedTuple):
    """Sets (n, 5), two elements of query classes first, then distractors; queries (Q, 2); grades (Q, n)."""

    sets: Array
    queries: Array
    relevance: Array


def world(name: str, classes: int, seed: int) -> World:
    """Classes in random order, ``classes`` of them to train on; descriptors are LOMDML's, learned on their labels."""
    with np.load(data_folder() / f"{name}.npz") as data:
        raw = {key[2:]: np.asarray(data[key], np.float64) for key in data.files if key.startswith("X_")}
        labels = data["y"]
    order = np.random.default_rng(seed).permutation(np.unique(labels))
    train, validation, test, _ = np.split(order, np.cumsum(CLASSES[name]))
    known = np.flatnonzero(np.isin(labels, train[:classes]))
    features = {}
    for modality, x in raw.items():
        low, high = x[known].min(axis=0), x[known].max(axis=0)
        features[modality] = (x - low) / np.where(high > low, high - low, 1.0)
    model = LOMDML({modality: x.shape[1] for modality, x in features.items()}, seed=seed)
    model.start({modality: x[known] for modality, x in features.items()})
    model.learn_many(from_labels(labels, TRIPLETS, seed, among=known), features)
    x = model.metric.embed(features).astype(np.float64)
    return World(x - x[known].mean(axis=0), labels, train[:classes], validation, test)


def by_class(labels: Array, rows: Array) -> Items:
    """These rows, in the order given within each class."""
    ordered = rows[np.argsort(labels[rows], kind="stable")]
    sizes = np.bincount(labels[rows], minlength=labels.max() + 1)
    return Items(ordered, np.cumsum(sizes) - sizes, sizes)


def distinct(among: Array, shape: tuple[int, ...], draw: np.random.Generator, other_than: ArrayLike = -1) -> Array:
    """Different classes along the last axis, none of them that of ``other_than`` (which broadcasts)."""
    order = draw.random((*shape[:-1], len(among)))
    order[np.broadcast_to(among == other_than, order.shape)] = 2.0
    return among[order.argsort(axis=-1)[..., : shape[-1]]]


def roles(chosen: Array) -> tuple[Array, Array]:
    """Classes that are distractors, never asked for: a third of these; and those asked for."""
    distractors, asked = np.split(chosen, [-(-len(chosen) // 3)])
    return distractors, asked


def parted(given: World, chosen: Array, draw: np.random.Generator) -> tuple[Items, Items]:
    """Items of these classes: a quarter of each are examples to ask with, the others lie in sets."""
    items = by_class(given.labels, draw.permutation(np.flatnonzero(np.isin(given.labels, chosen))))
    labels = given.labels[items.rows]
    example = np.arange(len(labels)) < items.begins[labels] + items.sizes[labels] // 4
    return by_class(given.labels, items.rows[example]), by_class(given.labels, items.rows[~example])


def gallery(given: World, chosen: Array, draw: np.random.Generator) -> Gallery:
    """Sets of two classes asked for and three distractors; queries for pairs that lie together in some set."""
    (distractors, asked), (examples, lying) = roles(chosen), parted(given, chosen, draw)
    pairs = distinct(asked, (SETS, 2), draw)
    queried = draw.permutation(np.unique(np.sort(pairs, axis=1), axis=0))[:PAIRS].repeat(EXAMPLES, axis=0)
    relevance = (queried[:, :, None, None] == pairs).any(axis=3).sum(axis=1)
    sets = np.hstack([pairs, distinct(distractors, (SETS, LARGEST - 2), draw)])
    return Gallery(lying.drawn(sets, draw), examples.drawn(queried, draw), relevance)


def judgements(given: World, count: int, size: int, draw: np.random.Generator) -> list[Judgement]:
    """One query element; sets of ``size`` classes to train on, two with another item of its class, six without."""
    items, query = by_class(given.labels, given.known), draw.choice(given.train, count)[:, None]
    own = draw.integers(0, items.sizes[query])
    other = own + draw.integers(1, items.sizes[query], (count, RELEVANT))
    beside = distinct(given.train, (count, RELEVANT, size - 1), draw, query[:, :, None])
    without = distinct(given.train, (count, IRRELEVANT, size), draw, query[:, :, None])
    asked = items.rows[items.begins[query] + own]
    again = items.rows[items.begins[query] + other % items.sizes[query]]
    relevant = np.concatenate([again[:, :, None], items.drawn(beside, draw)], axis=2)
    irrelevant = items.drawn(without, draw)
    return [Judgement(q, tuple(near), tuple(far)) for q, near, far in zip(asked, relevant, irrelevant, strict=True)]


def measured(relevance: Array, scores: Array) -> list[float]:
    """NDCG in %, at 10 and at 30, of scores (Q, n) of sets whose grades are ``relevance`` (Q, n)."""
    ranked = np.take_along_axis(relevance, rank_by_score(scores), axis=1)
    return [100 * float(ndcg(ranked, place).mean()) for place in PLACES]
