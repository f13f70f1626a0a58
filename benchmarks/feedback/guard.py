"""Hostile feedback: what it does to the metric that nodes answer with, and whether sound metrics go live meanwhile."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.feedback.hostile import KINDS, Crowd, Kind, later
from benchmarks.quality import SETS, data_folder, split
from omdml import DEFAULT_LEARNER
from omdml.evaluate import mean_average_precision
from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.letters import DeadLetters
from omdml.streams.memory_log import MemoryLog, MemorySink, MemorySource
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.learning.metrics import WorkerMetrics
from omdml.workers.learning.services import Services
from omdml.workers.learning.worker import LearnerWorker

Array = NDArray[Any]
MODEL = "shop"
# Shares of wrong clicks: always, and of inverted ones in the burst.
WRONG, INVERTED = 0.05, 0.30
# Numbers of events. At 500 a second the burst lasts a minute.
BEFORE, BURST, AFTER = 20_000, 30_000, 10_000
# Events between two turns of the worker, and between two looks at what is live.
STEP, LOOK = 50, 500
# Number of events of a disturbance; a part of them is hostile.
DISTURBED = 20_000


class Data(NamedTuple):
    """Items, their labels, the rows of items that people click on, and the rows of the test queries."""

    features: dict[str, Array]
    labels: Array
    train: Array
    test: Array


class Look(NamedTuple):
    """MAP of what is live and of what was learned, and whether the latter is withheld."""

    live: float
    learned: float
    withheld: bool


class Shop:
    """One model in a worker whose log and store are in memory, with the labels that tell what is right."""

    def __init__(
        self, folder: Path, data: Data, guard: dict[str, Any], secret: bytes, learner: str = DEFAULT_LEARNER
    ) -> None:
        self.data, self.labels = data, data.labels
        catalogue = build_catalogue(folder, data.features, scaling="none", mapped=True)
        self.log, self.store = MemoryLog(1), MemoryStore(secret=secret)
        models = {
            "catalogues": {"items": {"path": str(folder)}},
            "models": {MODEL: {"learner": learner}},
            "guard": guard,
        }
        configuration: Configuration = load(None, {}, models)
        specs = Specs(configuration, {"items": catalogue})
        self.features = specs.of(MODEL).catalogue.features
        services = Services(
            store=self.store,
            source=MemorySource(self.log),
            letters=DeadLetters(MemorySink(MemoryLog())),
            specs=specs,
            metrics=WorkerMetrics(CollectorRegistry()),
            platform="benchmark",
            clock=time.monotonic,
        )
        self.worker = LearnerWorker(services, configuration.worker)

    def learn(self, rows: Array) -> Iterator[Look]:
        """Send clicks and let the worker learn them, look by look.

        There is always time for the guard's looks, so that a slow machine measures much the same: at 500
        events a second, a turn would last a tenth of one.
        """
        for first in range(0, len(rows), STEP):
            for query, relevant, irrelevant in rows[first : first + STEP].astype(str).tolist():
                event = Triplet(model=MODEL, query=query, relevant=relevant, irrelevant=irrelevant)
                self.log.send(encode(event), MODEL)
            with patch("omdml.workers.model.judging.guard.SHARE", math.inf):
                self.worker.step()
            if (first + STEP) % LOOK == 0:
                yield self.look()

    def look(self) -> Look:
        """Publish everything that is due; returns the mAP of what is live and of what was learned."""
        with patch("omdml.workers.model.judging.guard.SHARE", math.inf):
            for owned in self.worker.partitions.values():
                owned.models.publish()
        loaded = self.store.load(MODEL)
        assert loaded is not None
        models = [
            owned.models.loaded[MODEL] for owned in self.worker.partitions.values() if MODEL in owned.models.loaded
        ]
        live = self._quality(loaded[1].metric)
        if not models or not models[0].judge.withheld:
            return Look(live, live, False)
        return Look(live, self._quality(models[0].learner.metric), True)

    def _quality(self, metric: Any) -> float:
        return mean_average_precision(metric.embed(self.features), self.labels, self.data.test)


class Outcome(NamedTuple):
    """The effect of a disturbance.

    ``clean`` and ``ended`` are the live mAP at its end (mean of four looks) without the disturbance and with it.
    ``lowest`` is the lowest live mAP, and ``after`` that after sound clicks. ``refused`` is the longest run of events
    during which a metric was withheld that was as good as the live one.
    """

    clean: float
    ended: float
    lowest: float
    after: float
    refused: int

    @property
    def lost(self) -> float:
        """How much live mAP the disturbance cost."""
        return self.clean - self.ended


def disturbed(
    kind: Kind, data: Data, seed: int, before: int = BEFORE, length: int = DISTURBED, after: int | None = None
) -> Outcome:
    """The outcome of hostile feedback between ``before`` and ``after`` sound clicks, by default half as many."""
    after = before // 2 if after is None else after
    crowd = Crowd(data.labels, data.train, seed)
    beginning, clicks = crowd.sound(before), kind.clicks(crowd._replace(seed=seed + 100), length)
    honest = not clicks.hostile.any()
    looks: list[list[Look]] = []
    for rows in (clicks.rows, clicks.rows[~clicks.hostile]):
        with tempfile.TemporaryDirectory() as folder:
            shop = Shop(Path(folder) / "items", data, {"on": not (honest and looks)}, bytes([seed + 1]) * 32)
            list(shop.learn(beginning))
            if honest:
                shop.labels = later(shop.labels)
            looks.append(list(shop.learn(rows)) or [shop.look()])
            if len(looks) == 1:
                last = looks[0][-1]
                if after:
                    *_, last = shop.learn(crowd._replace(seed=seed + 200, labels=shop.labels).sound(after))
    noisy, clean = looks
    ends = (float(np.mean([look.live for look in part[-4:]])) for part in (clean, noisy))
    return Outcome(*ends, min(look.live for look in noisy), last.live, refused(noisy))


def refused(looks: list[Look]) -> int:
    """Events at a stretch during which a metric was withheld that was as good as the live one."""
    longest = here = 0
    for look in looks:
        here = here + LOOK if look.withheld and look.learned >= look.live else 0
        longest = max(longest, here)
    return longest


def burst(data: Data, seed: int, on: bool) -> tuple[float, float, float]:
    """Live mAP just before the burst, at its lowest during it, and after as many sound clicks."""
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder) / "items", data, {"on": on}, bytes([seed + 1]) * 32)
        crowd = Crowd(data.labels, data.train, seed)
        *_, before = shop.learn(crowd.sound(BEFORE, WRONG))
        lowest = min(look.live for look in shop.learn(crowd._replace(seed=seed + 100).sound(BURST, INVERTED)))
        *_, after = shop.learn(crowd._replace(seed=seed + 200).sound(AFTER, WRONG))
        return before.live, lowest, after.live


def main(console: Console) -> None:
    """Print the tables, or say why there are none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in SETS):
        console.print("Guard: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    title = f"Live mAP around a burst of {BURST:,} clicks, {INVERTED:.0%} of them inverted; means over three seeds"
    table = Table("set", "guard", "before", "lowest in the burst", f"after {AFTER:,} sound clicks", title=title)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("guard", total=len(SETS) * 2)
        for name in SETS:
            for on in (True, False):
                figures = np.mean([burst(Data(*split(name, seed)), seed, on) for seed in range(3)], axis=0)
                table.add_row(name, "on" if on else "off", *(f"{figure:.3f}" for figure in figures))
                progress.advance(task)
    console.print(table)
    for name in HOSTILE_SETS:
        console.print(hostile_table(name))


HOSTILE_SETS = ("mfeat", "caltech101_20")


def hostile_table(name: str, seeds: int = 1) -> Table:
    """Every kind of hostile feedback on one data set; the worst of the seeds."""
    title = f"{name}: {DISTURBED:,} events after {BEFORE:,} sound ones; live mAP"
    heads = ("without", "with it", "lowest", f"after {BEFORE // 2:,} sound ones", "sound ones refused")
    table = Table("hostile feedback", *heads, "limit", title=title)
    for kind in KINDS:
        worst = max(
            (disturbed(kind, Data(*split(name, seed)), seed) for seed in range(seeds)), key=lambda outcome: outcome.lost
        )
        figures = (f"{figure:.3f}" for figure in worst[:4])
        table.add_row(kind.name, *figures, f"{worst.refused:,}", kind.limit)
    return table
