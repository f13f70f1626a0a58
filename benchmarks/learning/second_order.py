"""Speed of DCA, refreshes included: one modality of 128 numbers, of 512 mapped ones, and nine modalities of 3,209.

Of a catalogue's coordinates few vary much as a rule, and few events make a small problem. *All alike* is the other end:
every coordinate counts from the first refresh on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.learning.speed import seconds_of
from omdml import DCA
from omdml.blas import one_blas_thread
from omdml.engines.second_order.distinct import factors
from omdml.engines.second_order.state import BLOCK
from omdml.initial import principal_start
from omdml.kernels.second_order.blas import GEMM, SYRK, add_products, times
from omdml.kernels.second_order.covariance import TILE, learn
from omdml.kernels.shared.counts import FILLED
from omdml.workers.configuration.warm_up import warm_up

Array = NDArray[Any]
ITEMS, EVENTS, CALL, FIRST = 10_000, 200_000, 1_000, 100
ALIKE = "512 mapped coordinates, all alike"
CASES: dict[str, tuple[dict[str, int], int, str]] = {
    "128 numbers": ({"x": 128}, EVENTS, "pca"),
    "128 mapped coordinates": ({"mapped": 128}, EVENTS, "coordinates"),
    "512 mapped coordinates": ({"mapped": 512}, EVENTS, "coordinates"),
    ALIKE: ({"mapped": 512}, EVENTS, "coordinates"),
    "nine modalities, 3,209 numbers": ({**{f"m{i}": 356 for i in range(8)}, "m8": 361}, EVENTS // 10, "pca"),
}


def items(dims: Mapping[str, int], alike: bool) -> dict[str, Array]:
    """Items of twenty classes, with correlated features unless all are alike."""
    draw, width = np.random.default_rng(0), sum(dims.values())
    classes = draw.standard_normal((20, width))[draw.integers(0, 20, ITEMS)]
    shared = draw.standard_normal((ITEMS, 64)) @ draw.standard_normal((64, width))
    if alike:
        shared[:] = 0
    x = (classes + shared + draw.standard_normal((ITEMS, width))).astype(np.float32)
    ends = np.cumsum(list(dims.values()))[:-1]
    return {name: np.ascontiguousarray(part) for name, part in zip(dims, np.split(x, ends, axis=1), strict=True)}


def mapped(features: Mapping[str, Array]) -> dict[str, Array]:
    """Principal coordinates of the only modality, as a catalogue's map gives them."""
    x = features["mapped"]
    start = principal_start(features, x.shape[1], 0)
    return {"mapped": ((x - start["mean"]) @ start["basis"].T).astype(np.float32)}


def parts(table: Table, dims: Mapping[str, int], learned: int = 15_000) -> None:
    """Add what a triplet costs, part by part: the shortest of many measurements."""
    features = mapped(items(dims, alike=False))
    x, rows = features["mapped"], np.random.default_rng(1).integers(0, ITEMS, (learned, 3))
    model = DCA(dims=dims, init="coordinates")
    model.learn_many(rows, features)
    engine = model._engine
    state, addresses = engine.state, np.array([x.__array_interface__["data"][0]], np.uint64)
    gemm = GEMM[x.dtype.name]
    rule = engine.shape, engine.limit, factors(state.mean), engine.rule, engine.longest_square, gemm, SYRK, True
    tile, products, scores = (
        np.zeros((3 * TILE, len(x.T)), x.dtype),
        np.empty(2 * 3 * TILE * len(x.T), x.dtype),
        np.empty(9 * BLOCK),
    )
    weights = np.ones(len(scores))

    def walk(blocks: int) -> None:
        state.counts[FILLED] = 0
        part = rows[: blocks * BLOCK]
        learn(
            part, weights[: len(part)], addresses, *rule, state, engine.no_parent, tile, products, scores[: len(part)]
        )

    def shortest(run: Callable[[], object]) -> float:
        return min(seconds_of(run) for _ in range(300)) / BLOCK

    once = shortest(lambda: walk(1))
    pairs, total = np.zeros((BLOCK, len(x.T))), np.zeros((len(x.T), len(x.T)))
    used = int(state.used.sum())
    columns = state.W[: len(x.T) * used].reshape(len(x.T), used)
    product = np.empty((len(tile), used), x.dtype)
    costs = {
        f"projection, {' + '.join(map(str, state.used))} rows": 2
        * shortest(partial(times, tile, columns, product, gemm))
    }
    costs["a symmetric rank update"] = shortest(lambda: add_products(pairs, 0.5, 1.0, total, SYRK))
    costs["scored, a block at a time"] = once
    costs["a block closed"] = (shortest(lambda: walk(9)) - 9 * once) / 8
    costs["a refresh, of 200,000 / 42 triplets"] = shortest(engine.refresh) * BLOCK / (EVENTS / 42)
    for name, seconds in costs.items():
        table.add_row(name, f"{seconds * 1e6:.2f}")


def measure(dims: Mapping[str, int], events: int, init: str, alike: bool) -> list[str]:
    """Events a second of processor time, the slowest of the first hundred, a refresh, a metric, a lone event; bytes."""
    features = items(dims, alike)
    if init == "coordinates":
        features = mapped(features)
    rows = np.random.default_rng(1).integers(0, ITEMS, (events + FIRST, 3))
    model = DCA(dims=dims, init=init)
    begin = time.process_time()
    model.start(features)
    started = time.process_time() - begin
    model.learn_many(rows[:5], features)
    slowest = 0.0
    for row in rows[5:FIRST]:
        begin = time.process_time()
        model.learn_one(row, features)
        slowest = max(slowest, time.process_time() - begin)
    begin = time.process_time()
    for number in range(FIRST, FIRST + events, CALL):
        model.learn_many(rows[number : number + CALL], features)
    spent = time.process_time() - begin
    begin = time.process_time()
    model._engine.refresh()
    refresh = time.process_time() - begin
    # Right after a refresh it would only copy.
    model.learn_one(rows[0], features)
    begin = time.process_time()
    model._engine.served()
    served = time.process_time() - begin
    begin = time.process_time()
    for row in rows[:FIRST]:
        model.learn_one(row, features)
    lone = (time.process_time() - begin) / FIRST
    sizes = (model.nbytes, len(model.to_bytes()))
    return [
        f"{events / spent:,.0f} ({events:,})", f"{slowest * 1e3:.1f} ms", f"{refresh * 1e3:.1f} ms",
        f"{served * 1e3:.1f} ms", f"{lone * 1e3:.2f} ms", f"{started:.1f} s",
        *(f"{size / 1e6:.2f} MB" for size in sizes),
    ]  # fmt: skip


def main(console: Console) -> None:
    times = ("slowest of first 100", "refresh", "metric", "lone event", "start")
    columns = ("items", "events/s (of)", *times, "memory", "state")
    table = Table(*columns, title=f"DCA, processor time of one core, {CALL:,} events a call, refreshes included")
    # A worker loads compiled code when it starts, too.
    warm_up([("dca", "float32")])
    with one_blas_thread():
        for name, case in CASES.items():
            table.add_row(name, *measure(*case, alike=name == ALIKE))
        costs = Table("part", "us of a triplet", title="What a triplet costs at 128 mapped coordinates, shortest times")
        parts(costs, {"mapped": 128})
    console.print(table, costs)
