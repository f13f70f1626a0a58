"""Speed of learning: the blocked engine against the one-event numpy loop, on one core, in one run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from omdml import LOMDML
from omdml.blas import one_blas_thread
from omdml.kernels.shared.block import gather

Array = NDArray[Any]
NINE = [81, 37, 120, 59, 512, 200, 1000, 200, 1000]
SHAPES = {
    "nine modalities, 3,209 -> 50 each": (NINE, 50),
    "768 -> 128": ([768], 128),
    "3 x 64 -> 32": ([64] * 3, 32),
    "128 -> 64": ([128], 64),
}
ITEMS, EVENTS, ROUNDS = 5_000, 20_000, 5
ETA, BETA = 1e-6, 0.999


def one_event_loop(rows: Array, features: list[Array], gamma: float, W: list[Array]) -> None:
    """LOMDML as a numpy programmer writes it: an event at a time, a modality at a time."""
    theta = np.full(len(W), 1 / len(W))
    for q, r, s in rows:
        differences = [(x[q] - x[r], x[q] - x[s]) for x in features]
        projections = [(w @ a, w @ b) for w, (a, b) in zip(W, differences, strict=True)]
        f = np.array([p @ p - v @ v for p, v in projections])
        if theta @ f + gamma > 0:
            theta *= np.where(f > 0, BETA, 1.0)
            theta /= theta.sum()
            for w, (a, b), (p, v), violated in zip(W, differences, projections, f + 1 > 0, strict=True):
                if violated:
                    w -= 2 * ETA * (np.outer(p, a) - np.outer(v, b))


def best_of(prepare: Callable[[], Any], run: Callable[[Any], object], rounds: int = ROUNDS) -> list[float]:
    """Seconds of several runs, each on new data. The shortest is disturbed least by other work on the machine."""
    times = []
    for _ in range(rounds):
        prepared = prepare()
        begin = time.perf_counter()
        run(prepared)
        times.append(time.perf_counter() - begin)
    return times


def seconds_of(run: Callable[[], object]) -> float:
    """The shortest time of several runs in seconds."""
    return min(best_of(lambda: None, lambda _: run()))


def gather_all(address: int, pairs: Array, D: Array) -> None:
    """The differences of these pairs, 256 at a time."""
    for start in range(0, len(pairs), 256):
        gather(address, pairs[start : start + 256], D)


def limit(features: list[Array], W: list[Array], rows: Array) -> float:
    """Events a second of the machine's limit: BLAS projects 512 rows at a time, the gather alone beside it."""
    pairs = np.ascontiguousarray(rows[:, (0, 1, 0, 2)])
    seconds = 0.0
    for x, w in zip(features, W, strict=True):
        D = np.empty((512, x.shape[1]), x.dtype)
        address = np.uint64(x.__array_interface__["data"][0])
        out = np.empty((512, len(w)), x.dtype)
        gather(address, pairs[:256], D)
        seconds += seconds_of(partial(np.dot, D, w.T, out=out)) / 256
        seconds += seconds_of(partial(gather_all, address, pairs[:4096], D)) / 4096
    return 1 / seconds


def measure(name: str, dims: list[int], rank: int, table: Table) -> None:
    """Add the rows of one shape."""
    draw = np.random.default_rng(0)
    features = [draw.standard_normal((ITEMS, d), dtype=np.float32) for d in dims]
    W = [(draw.standard_normal((min(rank, d), d)) / math.sqrt(2 * d * rank)).astype(np.float32) for d in dims]
    rows = draw.integers(0, ITEMS, (EVENTS, 3))
    named = {f"m{i}": x for i, x in enumerate(features)}
    starts = {f"m{i}": w for i, w in enumerate(W)}
    sizes = {f"m{i}": d for i, d in enumerate(dims)}

    def model(gamma: float, step: str = "pa") -> LOMDML:
        return LOMDML(dims=sizes, eta=ETA, beta=BETA, gamma=gamma, step=step, init=starts)

    f = model(1e30, "ogd").learn_many(rows[:4000], named).scores
    machine = limit(features, W, rows)
    few = rows[: EVENTS // 20]
    for label, share in (("none", 0.0), ("half", 0.5), ("all", 1.0)):
        gamma = {0.0: -1e30, 1.0: 1e30}.get(share, float(np.quantile(-f, share)))
        run = partial(one_event_loop, few, features, gamma)
        loop = len(few) / min(best_of(lambda: [w.copy() for w in W], run, 3))
        rates = {}
        for step in ("pa", "ogd"):
            times = best_of(lambda g=gamma, s=step: model(g, s), lambda learner: learner.learn_many(rows, named))
            rates[step] = EVENTS / min(times)
        lone = lone_event(model(gamma), rows, named)
        table.add_row(
            name if label == "none" else "", label, f"{loop:,.0f}", f"{rates['pa']:,.0f}", f"{rates['pa'] / loop:.1f}",
            f"{rates['ogd'] / loop:.1f}", f"{rates['pa'] / machine:.0%}", f"{lone * 1e6:.0f} us",
            f"{lone * rates['pa']:.1f}",
        )  # fmt: skip


def lone_event(learner: LOMDML, rows: Array, features: dict[str, Array]) -> float:
    """Seconds per event if each comes alone, in a call of its own."""
    learner.learn_many(rows[:8], features)
    return seconds_of(lambda: [learner.learn_one(row, features) for row in rows[:200]]) / 200


def main(console: Console) -> None:
    columns = ("shape", "updates", "numpy loop /s", "omdml /s", "ratio", "ratio, fixed rate")
    columns += ("of the limit", "lone event", "lone : batch")
    table = Table(*columns, title="Learning speed, events a second (float32, one core, one BLAS thread)")
    with one_blas_thread():
        for name, (dims, rank) in SHAPES.items():
            measure(name, dims, rank, table)
    console.print(table)
    console.print(
        "'of the limit': of projecting by BLAS (512 rows a call) plus gathering, which no update can beat; "
        "the engine's own dot products may."
    )
