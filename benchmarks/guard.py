"""Hostile feedback: what inverted clicks do to the metric that nodes answer with, guard on and off."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.quality import SETS, data_folder, split
from omdml.comparisons import from_labels
from omdml.evaluate import mean_average_precision
from omdml.feedback import Triplet, encode
from streams.catalogues.build import build_catalogue
from streams.letters import DeadLetters
from streams.memory import MemoryLog, MemorySink, MemorySource
from streams.stores.memory import MemoryStore
from workers.config import Configuration, load
from workers.learner import LearnerWorker
from workers.metrics import WorkerMetrics
from workers.services import Services
from workers.specs import Specs

Array = NDArray[Any]
MODEL = "shop"
WRONG, INVERTED = 0.05, 0.30  # shares of the clicks, before and in the burst
BEFORE, BURST, AFTER = 20_000, 30_000, 10_000  # events; at 500 a second the burst lasts a minute
STEP, LOOK = 50, 1_000  # events between two turns of the worker, and between two looks at what is live


class Shop:
    """One model in a worker whose log and store are in memory, with the labels that tell what is right."""

    def __init__(self, folder: Path, name: str, seed: int, guard: dict[str, Any]) -> None:
        self.features, self.labels, self.train, self.test = split(name, seed)
        catalogue = build_catalogue(folder, self.features, scaling="none")
        self.log, self.store = MemoryLog(1), MemoryStore()
        models = {"catalogues": {"items": {"path": str(folder)}}, "models": {MODEL: {}}, "guard": guard}
        configuration: Configuration = load(None, {}, models)
        services = Services(
            store=self.store,
            source=MemorySource(self.log),
            letters=DeadLetters(MemorySink(MemoryLog())),
            specs=Specs(configuration, {"items": catalogue}),
            metrics=WorkerMetrics(CollectorRegistry()),
            platform="benchmark",
            clock=time.monotonic,
        )
        self.worker = LearnerWorker(services, configuration.worker)

    def clicks(self, count: int, wrong: float, seed: int) -> Array:
        """Triplets by label (count, 3), a share of them inverted."""
        rows = from_labels(self.labels, count, seed, among=self.train)
        inverted = np.random.default_rng(seed).random(count) < wrong
        rows[inverted] = rows[inverted][:, [0, 2, 1]]
        return rows

    def learn(self, rows: Array) -> Iterator[float]:
        """Send clicks and let the worker learn them; MAP of the live metric, look by look."""
        for first in range(0, len(rows), STEP):
            for query, relevant, irrelevant in rows[first : first + STEP].astype(str).tolist():
                event = Triplet(model=MODEL, query=query, relevant=relevant, irrelevant=irrelevant)
                self.log.send(encode(event), MODEL)
            self.worker.step()
            if first % LOOK == 0:
                yield self.live()

    def live(self) -> float:
        """MAP of test queries under what nodes would answer with."""
        found = self.store.load(MODEL)
        assert found is not None
        return mean_average_precision(found[1].metric.embed(self.features), self.labels, self.test)


def burst(name: str, seed: int, on: bool) -> tuple[float, float, float]:
    """Live mAP just before the burst, at its lowest during it, and after as many sound clicks."""
    with tempfile.TemporaryDirectory() as folder:
        shop = Shop(Path(folder) / "items", name, seed, {"on": on})
        *_, before = shop.learn(shop.clicks(BEFORE, WRONG, seed))
        lowest = min(shop.learn(shop.clicks(BURST, INVERTED, seed + 100)))
        *_, after = shop.learn(shop.clicks(AFTER, WRONG, seed + 200))
        return before, lowest, after


def main(console: Console) -> None:
    """Print the table, or say why there is none."""
    if not all((data_folder() / f"{name}.npz").is_file() for name in SETS):
        console.print("Guard: the data sets are not here; set OMDML_DATA to the folder that holds them. Left out.")
        return
    title = f"Live mAP around a burst of {BURST:,} clicks, {INVERTED:.0%} of them inverted; means over three seeds"
    table = Table("set", "guard", "before", "lowest in the burst", f"after {AFTER:,} sound clicks", title=title)
    with Progress(console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("guard", total=len(SETS) * 2)
        for name in SETS:
            for on in (True, False):
                figures = np.mean([burst(name, seed, on) for seed in range(3)], axis=0)
                table.add_row(name, "on" if on else "off", *(f"{figure:.3f}" for figure in figures))
                progress.advance(task)
    console.print(table)
