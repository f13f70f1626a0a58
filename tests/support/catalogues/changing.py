"""Changes a catalogue and a dict in the same way, and compares them. Every kind of catalogue is tested with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.testing import assert_allclose

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.changes.change import Change, Changed, ChangeError
from omdml.streams.catalogues.items import Items
from tests.support import worlds

Raw = dict[str, list[float]]


def raw_item(draw: np.random.Generator, dims: Mapping[str, int] | None = None) -> Raw:
    """The raw vectors of an item, one for each modality."""
    return {name: draw.normal(size=dim).round(6).tolist() for name, dim in (dims or worlds.DIMS).items()}


def plain_catalogue(folder, mapped: bool = False, count: int = worlds.ITEMS) -> Items:
    """The items ``i0`` to ``i119`` without sets."""
    features = {name: x[:count] for name, x in worlds.items()[0].items()}
    return build_catalogue(folder, features, ids=[f"i{row}" for row in range(count)], mapped=mapped)


def change(catalogue: Any, *changes: Change) -> Changed:
    """Make these changes in one call; raises ChangeError if they are refused."""
    (result,) = catalogue.change([catalogue.prepare(changes)])
    if isinstance(result, ChangeError):
        raise result
    return result


class Twin:
    """What a catalogue should hold: raw vectors and attributes by id."""

    def __init__(self, count: int = worlds.ITEMS) -> None:
        features = worlds.items()[0]
        self.vectors: dict[str, Raw] = {
            f"i{row}": {name: x[row].tolist() for name, x in features.items()} for row in range(count)
        }
        self.attributes: dict[str, dict[str, Any]] = {}

    def make(self, change: Change) -> None:
        """Make the change that the catalogue should have made, too."""
        if change.delete:
            self.vectors.pop(change.id, None)
            self.attributes.pop(change.id, None)
        if change.features is not None:
            self.vectors[change.id] = change.features
        if change.attributes is not None:
            self.attributes[change.id] = change.attributes

    def check(self, catalogue: Items) -> None:
        """Check that the catalogue holds the same items, each with its newest vectors and attributes."""
        ids = list(self.vectors)
        rows = catalogue.rows([*ids, "never-there"])
        assert rows[-1] == -1
        shown = catalogue.shown
        alive = np.ones(shown.rows, bool) if shown.alive is None else shown.alive
        assert (shown.rows, shown.items) == (len(catalogue.ids), len(ids))
        assert sorted(rows[:-1].tolist()) == np.flatnonzero(alive).tolist()
        expected = catalogue.scale({name: np.array([self.vectors[item][name] for item in ids]) for name in worlds.DIMS})
        for name, matrix in expected.items():
            assert_allclose(catalogue.features[name][rows[:-1]], matrix, atol=1e-6)
        if catalogue.map:
            assert_allclose(catalogue.mapped[rows[:-1]], catalogue.map.apply(expected), atol=1e-5)
        assert catalogue.attributes == self.attributes


def random_change(draw: np.random.Generator, twin: Twin) -> Change:
    """A random change of an old or a new item."""
    item = f"i{draw.integers(worlds.ITEMS + 40)}"
    attributes: Any = {"price": float(draw.integers(9)), "tags": ["red"]} if draw.random() < 0.5 else None
    kind = draw.random()
    if kind < 0.3:
        return Change(id=item, delete=True)
    if kind < 0.5 and item in twin.vectors:
        return Change(id=item, attributes=attributes or {})
    return Change(id=item, features=raw_item(draw), attributes=attributes)


def check_random_life(catalogue: Items, reopened: Callable[[], Items], seed: int, steps: int = 30) -> None:
    """Make random changes in groups, by two writers in turn, and compare what later readers see."""
    draw, twin = np.random.default_rng(seed), Twin(len(catalogue.ids))
    writers, position = [catalogue, reopened()], 0
    for step in range(steps):
        writer, batches = writers[step % 2], []
        for _ in range(draw.integers(1, 4)):
            changes = [random_change(draw, twin) for _ in range(draw.integers(1, 6))]
            # A change of attributes needs an item that was there before the group. Otherwise it would be refused, which
            # is not what this is about.
            changes = [change for change in changes if change.features or change.delete or len(changes) == 1]
            batches.append(writer.prepare(changes))
            for change in changes:
                twin.make(change)
                position += change.features is not None or change.attributes is not None
        before = writer.shown.position
        results = writer.change(batches)
        assert all(isinstance(result, Changed) for result in results)
        assert writer.shown.position >= before
        twin.check(writer)
        if step % 7 == 0:
            twin.check(reopened())
    follower = reopened()
    for writer in writers:
        writer.refresh()
        twin.check(writer)
        # Writers and readers number the rows in the same way.
        assert list(writer.ids) == list(follower.ids)
        assert writer.shown.position == follower.shown.position >= position
