"""``python -m benchmarks parts``: one hot model in parts, on one core and on two, and what merging many parts costs.

Two tables. The first learns the same events with one part, and with two parts in two processes at once, in turns; each
figure is of the same processes' own time (user and system), and the last column compares how many events each process
learned in a second of it. If parts did not get in each other's way, two would learn twice as many in the same time. The
second simulates up to 16 parts on one core: the processor time of one merge of all their checkpoints. If a merge is
made each second, the milliseconds of a part are what a second of learning by that part costs the core that merges.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from omdml import DCA
from omdml.batch.sums import merged
from omdml.builders import from_labels
from omdml.workers.configuration.process import one_thread

ITEMS, CLASSES = 5000, 50
EVENTS = int(os.environ.get("OMDML_PARTS_EVENTS", "4000"))
DIMS, PARTS, ROUNDS = (128, 512), (1, 2, 4, 8, 16), 3
PIECE, LEARNED = 1000, 4
FORKS = multiprocessing.get_context("fork")


def main(console: Console) -> None:
    """Print how fast parts learn, and what it costs to add them up."""
    one_thread()
    columns = ("coordinates", "parts", "events", "events a second of a core", "of all cores", "ratio to one part")
    learning = Table(*columns, title="learning, processor time")
    columns = ("coordinates", "parts", "ms to read a part", "ms to add all, make the metric", "ms in all", "ms a part")
    merging = Table(*columns, title="one merge, processor time")
    for dim in DIMS:
        start, features, labels = _world(dim)
        rates: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(ROUNDS):
            for parts in (1, 2):
                rates[parts].append(_learned_at(start, features, labels, parts, turn))
        rate_of_one = statistics.median(rates[1])
        for parts, measured in rates.items():
            rate = statistics.median(measured)
            learning.add_row(f"{dim}", f"{parts}", f"{EVENTS:,} each", f"{rate:,.0f}", f"{parts * rate:,.0f}",
                             f"{parts * rate / rate_of_one:.2f}")  # fmt: skip
        states = _states(start, features, labels)
        for parts in PARTS:
            read, add = _merge_ms(start, states, parts)
            whole = parts * read + add
            merging.add_row(f"{dim}", f"{parts}", f"{read:.0f}", f"{add:.0f}", f"{whole:.0f}",
                            f"{whole / parts:.0f}")  # fmt: skip
    console.print(learning)
    console.print(merging)


def _world(dim: int) -> tuple[DCA, dict[str, Any], Any]:
    draw = np.random.default_rng(0)
    labels = draw.integers(0, CLASSES, ITEMS)
    features = {"item": (draw.normal(0, 1, (CLASSES, dim))[labels] + draw.normal(0, 1, (ITEMS, dim))).astype("f4")}
    start = DCA(dims={"item": dim}, init="coordinates")
    start.start(features)
    return start, features, labels


def _learned_at(start: DCA, features: dict[str, Any], labels: Any, parts: int, seed: int) -> float:
    """Events that a part learns in a second of its own processor time, while the others learn beside it."""
    results: Any = FORKS.Queue()
    processes = [FORKS.Process(target=_learn, args=(start, features, labels, 10 * seed + number, results))
                 for number in range(parts)]  # fmt: skip
    for process in processes:
        process.start()
    seconds = [results.get() for _ in processes]
    for process in processes:
        process.join()
    return EVENTS / statistics.mean(seconds)


def _learn(start: DCA, features: dict[str, Any], labels: Any, seed: int, results: Any) -> None:
    rows = from_labels(labels, EVENTS, seed)
    learner = DCA.from_bytes(start.to_bytes())
    began = time.process_time()
    for first in range(0, len(rows), PIECE):
        learner.learn_many(rows[first : first + PIECE], features)
        # A worker saves each second or so; this is about as many events.
        if first % (5 * PIECE) == 0:
            learner.to_bytes()
    results.put(time.process_time() - began)


def _states(start: DCA, features: dict[str, Any], labels: Any) -> list[bytes]:
    """Checkpoints of as many parts as there are at most. Four are learned, and each serves again for other parts."""
    states = []
    for number in range(LEARNED):
        learner = DCA.from_bytes(start.to_bytes())
        learner.learn_many(from_labels(labels, 4 * PIECE, 100 + number), features)
        states.append(learner.to_bytes())
    return states * (max(PARTS) // LEARNED)


def _merge_ms(start: DCA, states: list[bytes], parts: int) -> tuple[float, float]:
    """Milliseconds to read and check the state of one part, and to add up ``parts`` of them and make the metric."""
    reads, adds = [], []
    for _ in range(ROUNDS):
        began = time.process_time()
        learners = [DCA.from_bytes(state) for state in states[:parts]]
        read = time.process_time()
        whole = merged(start, learners)
        assert whole.metric.dims
        assert whole.version == parts * 4 * PIECE
        reads.append((read - began) / parts)
        adds.append(time.process_time() - read)
    return 1000 * statistics.median(reads), 1000 * statistics.median(adds)
