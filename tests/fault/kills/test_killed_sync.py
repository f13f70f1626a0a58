"""``omdml sync`` killed at any moment, while the model learns on and items come and go: an answer has one version."""

from __future__ import annotations

import time
from functools import partial

import numpy as np
import pytest

from omdml.streams.catalogues.changes.change import Change
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.operate.export.vectors import spread
from tests.support.catalogues.changing import change, plain_catalogue, raw_item
from tests.support.catalogues.indexes import Lance, Postgres, Watcher, bytes_of
from tests.support.deep import DEEP
from tests.support.forks import ForkedProcess
from tests.support.nodes import CONFIGURATION
from tests.support.processes import wait_for
from tests.support.shops import Shop

# One process runs the tests of indexes, with one PostgreSQL.
pytestmark = pytest.mark.xdist_group("indexes")
KILLS = 6 if DEEP else 3
MOVED = 0.05


@pytest.fixture(params=["postgresql", "lancedb"])
def database(request, tmp_path):
    if request.param == "lancedb":
        return Lance(tmp_path / "vectors")
    return Postgres(request.getfixturevalue("postgres").url)


class Changing:
    """A shop that learns, publishes, and whose items come and go; it remembers which items there ever were at once."""

    def __init__(self, folder) -> None:
        self.shop = Shop(folder, store=DirectoryStore(str(folder / "state")), items=plain_catalogue)
        self.draw, self.ids = np.random.default_rng(0), set(self.shop.catalogue.ids)
        self.sets, self.version = {frozenset(self.ids)}, self.shop.publish()

    def go_on(self) -> None:
        """Make one step of each kind, or none."""
        for _ in range(self.draw.integers(0, 3)):
            name = f"new-{len(self.shop.catalogue.ids)}"
            self._change(Change(id=name, features=raw_item(self.draw)))
            self._change(Change(id=str(self.draw.choice(sorted(self.ids))), delete=True))
        self.shop.learn(int(self.draw.integers(1, 30)))
        self.version = self.shop.publish()

    def _change(self, item_change) -> None:
        # It can be seen as soon as it is made, so it is remembered before.
        self.ids ^= {item_change.id}
        self.sets.add(frozenset(self.ids))
        change(self.shop.catalogue, item_change)

    def check(self, answer) -> None:
        """Check that an answer has the items of one moment, with their vectors under the version that it names."""
        assert frozenset(answer.vectors) in self.sets
        rows = {name: row for row, name in enumerate(self.shop.catalogue.ids)}
        places = [rows[name] for name in answer.vectors]
        features = {name: matrix[places] for name, matrix in self.shop.catalogue.features.items()}
        exact = self.shop.metrics[answer.version].embed(features).astype(np.float64)
        rough = np.array(list(answer.vectors.values()), np.float64)
        away = [np.linalg.norm(entry[:, None] - entry[None], axis=2) for entry in (exact, rough)]
        # Each end of a distance may be off by the bound.
        assert np.abs(away[0] - away[1]).max() <= 2 * MOVED * spread(exact.astype(np.float32)) * 1.01


def is_writing(process):
    """Whether the last log line of a sync says that it brings a version."""
    return process.said.count("sync_writing") > process.said.count("sync_current")


def brings(process, changing):
    """Whether a sync writes a version; if not, make the next change."""
    return is_writing(process) or changing.go_on()


def test_a_sync_that_is_killed_at_any_moment_never_shows_two_versions(database, tmp_path):
    (tmp_path / "omdml.toml").write_text(CONFIGURATION.format(port=1))
    changing = Changing(tmp_path)
    environment = {"OMDML_SYNC_TO": database.address}

    def started(name, *options):
        command = "sync", "shop", "--moved", str(MOVED), "--follow", *options
        return ForkedProcess(tmp_path, *command, name=name, environment=environment)

    first = started("first")
    wait_for(lambda: "sync_current" in first.said, "the first version", 120, first)
    assert first.stop() == 0
    reader, in_the_middle = Watcher(database), 0
    reader.start()
    for number in range(KILLS):
        changing.go_on()
        process = started(f"sync-{number}", "--rows-per-second", "100")
        ends = time.monotonic() + changing.draw.uniform(0, 2)
        while time.monotonic() < ends:
            changing.go_on()
            time.sleep(changing.draw.uniform(0, 0.3))
        # Half of them are killed anywhere from the start on, the others while they bring something.
        if number % 2:
            wait_for(partial(brings, process, changing), "it to bring something", 120, process)
        process.kill()
        process.close()
        in_the_middle += is_writing(process)
    last = started("last")
    wait_for(lambda: reader.sees(changing.version), "the newest version", 120, last)
    assert last.stop() == 0
    reader.end()
    assert in_the_middle
    for answer in {(answer.version, bytes_of(answer)): answer for answer in reader.answers}.values():
        changing.check(answer)
    assert set(database.read().vectors) == changing.ids
