"""Hostile feedback of many kinds: who sends it knows the code and every offset, but not the store's secret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from omdml.builders import from_labels

Array = NDArray[np.int64]
# One event in EVERY is held out. Aimed clicks are sent to every such position first: events used to be held out by
# their order. Now a keyed hash decides, so aimed clicks must do no more harm than the same number of random ones.
EVERY = 50


class Clicks(NamedTuple):
    """Triplets (n, 3), in order, and which of them (n,) are hostile."""

    rows: Array
    hostile: NDArray[np.bool_]


class Crowd(NamedTuple):
    """Whose clicks are disturbed: labels of all items, and the rows of those that are clicked on."""

    labels: Array
    among: Array
    seed: int

    def sound(self, count: int, wrong: float = 0.05) -> Array:
        """Triplets by label (count, 3), a share of them inverted: people err."""
        rows = from_labels(self.labels, count, self.seed, among=self.among)
        inverted = np.random.default_rng(self.seed).random(count) < wrong
        rows[inverted] = rows[inverted][:, [0, 2, 1]]
        return rows


def inverted(crowd: Crowd, count: int) -> Array:
    """The opposite of what people mean."""
    return crowd._replace(seed=crowd.seed + 1).sound(count, wrong=1.0)


def about_three_items(crowd: Crowd, count: int) -> Array:
    """Wrong clicks about three items, two of them of one label."""
    query, relevant, irrelevant = inverted(crowd, 1)[0].tolist()
    return np.tile([[query, relevant, irrelevant], [irrelevant, relevant, query]], (count // 2 + 1, 1))[:count]


def about_twenty_queries(crowd: Crowd, count: int) -> Array:
    """Wrong clicks of one user, who asks for twenty items over and over."""
    rows = inverted(crowd, 50 * count)
    own = np.unique(rows[:, 0])[:: max(1, len(np.unique(rows[:, 0])) // 20)][:20]
    rows = rows[np.isin(rows[:, 0], own)]
    return rows[np.arange(count) % len(rows)]


def label_pulled_to_another(crowd: Crowd, count: int) -> Array:
    """Clicks that all pull one label to another, whose items are to come up for it."""
    draw = np.random.default_rng(crowd.seed)
    victim, favoured = draw.permutation(np.unique(crowd.labels))[:2]
    own, others = (crowd.among[crowd.labels[crowd.among] == label] for label in (victim, favoured))
    return np.stack([draw.choice(own, count), draw.choice(others, count), draw.choice(own, count)], axis=1)


def mixed(
    crowd: Crowd, count: int, share: float, feedback: Callable[[Crowd, int], Array] = inverted, aimed: bool = False
) -> Clicks:
    """A share of the clicks is hostile, at random or, first of all, at every fiftieth position."""
    rows, draw = crowd.sound(count), np.random.default_rng(crowd.seed + 2)
    order = draw.permutation(count)
    if aimed:
        order = order[np.argsort(order % EVERY != EVERY - 1, kind="stable")]
    hostile = np.zeros(count, bool)
    hostile[order[: round(share * count)]] = True
    rows[hostile] = feedback(crowd, int(hostile.sum()))
    return Clicks(rows, hostile)


def burst(crowd: Crowd, count: int, length: int) -> Clicks:
    """Nothing but the opposite for a while, then sound clicks."""
    rows = np.concatenate([inverted(crowd, length), crowd.sound(count - length)])
    return Clicks(rows, np.arange(count) < length)


def contradiction(crowd: Crowd, count: int) -> Clicks:
    """Each sound click is followed by its opposite."""
    rows = np.repeat(crowd.sound(count // 2), 2, axis=0)
    rows[1::2] = rows[1::2][:, [0, 2, 1]]
    return Clicks(rows, np.arange(len(rows)) % 2 == 1)


def change_of_taste(crowd: Crowd, count: int) -> Clicks:
    """Nobody is hostile: labels are grouped in another way, and all click by that."""
    return Clicks(crowd._replace(labels=later(crowd.labels)).sound(count), np.zeros(count, bool))


def later(labels: Array) -> Array:
    """What is similar after a change of taste."""
    classes = int(labels.max()) + 1
    result: Array = np.random.default_rng(9).permutation(classes)[labels] // max(2, classes // 4)
    return result


@dataclass(frozen=True)
class Kind:
    """A kind of hostile feedback; ``limit``: why nothing can be promised of it, empty if something is."""

    name: str
    clicks: Callable[[Crowd, int], Clicks]
    limit: str = ""


KINDS = (
    Kind("random noise, 2 %", partial(mixed, share=0.02)),
    Kind("aimed noise, 2 %", partial(mixed, share=0.02, aimed=True)),
    Kind("random noise, 30 %", partial(mixed, share=0.30)),
    Kind("aimed noise, 30 %", partial(mixed, share=0.30, aimed=True)),
    Kind(
        "30 % pull one label to another",
        partial(mixed, share=0.30, feedback=label_pulled_to_another, aimed=True),
        limit="of the clicks about that label they are the majority",
    ),
    Kind("burst of 1,500", partial(burst, length=1_500)),
    Kind("three items, 2 %", partial(mixed, share=0.02, feedback=about_three_items, aimed=True)),
    Kind("three items, 30 %", partial(mixed, share=0.30, feedback=about_three_items, aimed=True)),
    Kind(
        "one user, 90 %, twenty queries",
        partial(mixed, share=0.90, feedback=about_twenty_queries, aimed=True),
        limit="a majority decides what is right",
    ),
    Kind("contradiction, 50 %", contradiction),
    Kind("honest change of taste", change_of_taste),
    Kind("majority: 90 %, all items", partial(mixed, share=0.90), limit="a majority decides what is right"),
)
