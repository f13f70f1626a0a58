"""Searches in large galleries: exact beside faiss, over a bridge, while a gallery is embedded, and approximate."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from omdml.blas import one_blas_thread
from omdml.metrics import ProjectionMetric
from omdml.workers.node.galleries.bridge import Bridge, Spread
from omdml.workers.node.galleries.gallery import Gallery, Hits, Query

Array = NDArray[Any]
MILLION = int(os.environ.get("OMDML_MILLION_ITEMS", "1000000"))
SHAPES = ((5_000, 50), (MILLION // 10, 450), (MILLION, 128))
ROUNDS, K = 25, 10
# How far metrics moved, as a share of their matrix.
MOVES = (0.01, 0.03, 0.05, 0.07, 0.1, 0.3)
# The move under which an approximate index is measured.
MOVED = 1e-2
# Shares of cells that an approximate index looks into.
PROBED = (1 / 80, 1 / 40, 1 / 20, 1 / 10)
# Intrinsic dimensions and clusters of the items that are drawn.
INTRINSIC, CLUSTERS = 24, 2_000
# Shares of the rows that were deleted, and that a filter leaves.
GONE, MATCHING = 0.01, 0.1


def main(console: Console) -> None:
    """Print the tables. Needs the package faiss-cpu."""
    with one_blas_thread():
        beside_faiss(console)
        over_a_bridge(console)
        in_cells(console)


def items(count: int, width: int) -> NDArray[np.float32]:
    """Items in clusters. They spread along few directions, less along each, and a little along all others."""
    draw = np.random.default_rng(0)
    axes = draw.normal(size=(INTRINSIC, width)) * np.linspace(1, 0.2, INTRINSIC)[:, None]
    centres = draw.normal(size=(CLUSTERS, INTRINSIC)).astype(np.float32)
    result = np.empty((count, width), np.float32)
    for start in range(0, count, 50_000):
        rows = min(50_000, count - start)
        place = centres[draw.integers(0, CLUSTERS, rows)]
        place = place + 0.5 * draw.standard_normal((rows, INTRINSIC), dtype=np.float32)
        result[start : start + rows] = place @ axes.astype(np.float32)
        result[start : start + rows] += 0.1 * draw.standard_normal((rows, width), dtype=np.float32)
    return result


def metric(width: int, move: float = 0.0) -> ProjectionMetric:
    """The plain distance, or one that moved by a share of it."""
    draw = np.random.default_rng(1)
    change = draw.normal(size=(width, width)) / np.sqrt(width)
    return ProjectionMetric({"x": 1.0}, {"x": (np.eye(width) + move * change).astype(np.float32)})


def beside_faiss(console: Console) -> None:
    """The same queries to a gallery and to ``IndexFlatL2`` on one thread each, in turn; answers must be the same."""
    import faiss

    faiss.omp_set_num_threads(1)
    table = Table(
        "items", "coordinates", "scan p50", "faiss p50", "faiss / scan", "of CPU", "filter", "gone", "rows", "codes"
    )
    table.title = f"exact searches, k = {K}, medians of {ROUNDS}; a filter leaves {MATCHING:.0%}, {GONE:.0%} went"
    for count, width in SHAPES:
        matrix, draw = items(count, width), np.random.default_rng(2)
        gallery, flat = Gallery(metric(width), {"x": matrix}), faiss.IndexFlatL2(width)
        flat.add(matrix)
        among, alive = draw.random(count) < MATCHING, draw.random(count) >= GONE
        ways: dict[str, Callable[[Array], object]] = {
            "scan": lambda point, gallery=gallery: gallery.nearest(asked(point), K),
            "faiss": lambda point, flat=flat: flat.search(point, K),
            "filter": lambda point, gallery=gallery, among=among: gallery.nearest(asked(point, among), K),
            "gone": lambda point, gallery=gallery, alive=alive: gallery.nearest(asked(point, alive), K),
        }
        points = matrix[draw.integers(0, count, ROUNDS)] + np.float32(0.05) * draw.standard_normal(
            (ROUNDS, width), dtype=np.float32
        )
        for way in ways.values():
            way(points[:1])
        wall, processor = {name: [] for name in ways}, {name: [] for name in ways}
        for place in range(ROUNDS):
            answers = {}
            for name, way in ways.items():
                began, spent = time.perf_counter(), time.thread_time()
                answers[name] = way(points[place : place + 1])
                processor[name].append(time.thread_time() - spent)
                wall[name].append(time.perf_counter() - began)
            same(answers["scan"], answers["faiss"][1][0], matrix, points[place])
        ms = {name: 1e3 * float(np.median(times)) for name, times in wall.items()}
        table.add_row(
            f"{count:,}", f"{width}", f"{ms['scan']:.2f} ms", f"{ms['faiss']:.2f} ms",
            f"{ratio(wall['faiss'], wall['scan']):.1f}", f"{ratio(processor['faiss'], processor['scan']):.1f}",
            f"{ratio(wall['filter'], wall['scan']):.2f}x", f"{ratio(wall['gone'], wall['scan']):.2f}x",
            f"{(gallery.nbytes - gallery.codes.nbytes) / 1e6:.3g} MB", f"{gallery.codes.nbytes / 1e6:.3g} MB",
        )  # fmt: skip
    console.print(table)


def asked(point: Array, among: NDArray[np.bool_] | None = None) -> Query:
    """A query that searches for a vector."""
    return Query(np.empty(0, np.int64), {"x": point}, among=among)


def same(hits: Hits, rows: Array, matrix: Array, point: Array) -> None:
    """Raise RuntimeError if faiss found other distances. It may order rows differently whose distances nearly agree."""
    other = np.sort(((matrix[rows].astype(np.float64) - point) ** 2).sum(axis=1))
    if not np.allclose(hits.distances, other, rtol=1e-4):
        raise RuntimeError(f"the gallery answers {hits}, faiss {rows}")


def ratio(these: list[float], those: list[float]) -> float:
    """The median of the ratios of what was measured in turn."""
    return float(np.median(np.divide(these, those)))


def over_a_bridge(console: Console) -> None:
    """Searches of a million items under metrics that moved; then p50 and p99 while the gallery is embedded again."""
    count, width = SHAPES[-1]
    matrix, old = items(count, width), metric(width)
    features = {"x": matrix}
    gallery, spread = Gallery(old, features), Spread(features)
    queries = [Query(np.array([row])) for row in np.random.default_rng(3).integers(0, count, ROUNDS).tolist()]
    table = Table("metric moved by", "proven", "time, p50", "largest", "recall of the old metric", "re-ranked")
    table.title = (
        f"{count:,} x {width} under a new metric, before they are embedded again: {ROUNDS} queries; processor time "
        "beside that of a search of the gallery"
    )
    for move in MOVES:
        new = metric(width, move)
        bridge, whole = Bridge(gallery, old, new, features, spread), Gallery(new, features)
        took, plain, proven, stale, ranked = [], [], 0, [], []
        for query in queries:
            began = time.thread_time()
            before = gallery.nearest(query, K)
            plain.append(time.thread_time() - began)
            began = time.thread_time()
            hits = bridge.nearest(query, K)
            # If nothing is proven, the old metric answers.
            took.append(time.thread_time() - began + (plain[-1] if hits is None else 0))
            proven += hits is not None
            exact = set(whole.nearest(query, K).rows.tolist())
            stale.append(len(exact & set(before.rows.tolist())) / K)
            ranked.append(len(exact & set(re_ranked(gallery, whole, query))) / K)
        table.add_row(
            f"{move:.0%}", f"{proven / len(queries):.0%}", f"{ratio(took, plain):.2f}x",
            f"{np.max(np.divide(took, plain)):.2f}x", f"{np.mean(stale):.3f}", f"{np.mean(ranked):.3f}",
        )  # fmt: skip
        del whole
    console.print(table)
    while_embedding(console, gallery, features, queries)


def in_cells(console: Console) -> None:
    """An approximate index beside the exact scan: recall and time, under its own metric and under one that moved."""
    count, width = SHAPES[-1]
    features = {"x": items(count, width)}
    old, new = metric(width), metric(width, MOVED)
    gallery, whole = Gallery(old, features), Gallery(new, features)
    began, spent = time.perf_counter(), time.process_time()
    near = gallery.with_cells()
    assert near.cells is not None
    console.print(
        f"cells made in {time.perf_counter() - began:.0f} s, {time.process_time() - spent:.0f} s of processor; "
        f"they take {near.cells.nbytes / 1e6:,.0f} MB"
    )
    bridge = Bridge(near, old, new, features, Spread(features))
    queries = [Query(np.array([row])) for row in np.random.default_rng(3).integers(0, count, 4 * ROUNDS).tolist()]
    table = Table("cells looked into", "recall@10", f"metric moved by {MOVED:.0%}", "p50", "scan / cells", "of CPU")
    table.title = f"{count:,} x {width}, approximately: {len(queries)} queries"
    for share in PROBED:
        near.cells.probe(share)
        shares, moved = [], []
        wall, processor = {"scan": [], "cells": []}, {"scan": [], "cells": []}
        for query in queries:
            answers = {}
            for name, index in (("scan", gallery), ("cells", near)):
                began, spent = time.perf_counter(), time.thread_time()
                answers[name] = set(index.nearest(query, K).rows.tolist())
                processor[name].append(time.thread_time() - spent)
                wall[name].append(time.perf_counter() - began)
            shares.append(len(answers["scan"] & answers["cells"]) / K)
            hits = bridge.nearest(query, K)
            right = set(whole.nearest(query, K).rows.tolist())
            moved.append(len(right & set(hits.rows.tolist() if hits else [])) / K)
        table.add_row(
            f"{share:.2%}", f"{np.mean(shares):.3f}", f"{np.mean(moved):.3f}",
            f"{1e3 * np.median(wall['cells']):.1f} ms",
            f"{ratio(wall['scan'], wall['cells']):.1f}", f"{ratio(processor['scan'], processor['cells']):.1f}",
        )  # fmt: skip
    console.print(table)


def re_ranked(old: Gallery, new: Gallery, query: Query, depth: int = 500) -> list[int]:
    """The nearest under a new metric among the nearest under the old one."""
    rows = np.sort(old.nearest(query, depth).rows)
    among = np.zeros(len(new.embedding), np.bool_)
    among[rows] = True
    return new.nearest(query._replace(among=among), K).rows.tolist()


def while_embedding(console: Console, gallery: Gallery, features: Mapping[str, Array], queries: list[Query]) -> None:
    """Latencies in turn: nothing else, and a thread that embeds the gallery, as a node does after a new version."""
    stop, go = threading.Event(), threading.Event()
    built: list[float] = []

    def embed() -> None:
        while not stop.is_set():
            if go.wait(0.05):
                began = time.perf_counter()
                Gallery(gallery.metric, features)
                built.append(time.perf_counter() - began)

    thread = threading.Thread(target=embed)
    thread.start()
    took: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(6):
        for busy in (False, True):
            (go.set if busy else go.clear)()
            while busy is False and threading.active_count() > 1 and go.is_set():
                time.sleep(0.01)
            for query in queries * 2:
                began = time.perf_counter()
                gallery.nearest(query, K)
                took[busy].append(time.perf_counter() - began)
    stop.set()
    thread.join()
    quiet, busy = (1e3 * np.quantile(took[busy], [0.5, 0.99]) for busy in (False, True))
    console.print(
        f"while the gallery is embedded (median {np.median(built):.1f} s): p50 {quiet[0]:.1f} -> {busy[0]:.1f} ms "
        f"({busy[0] / quiet[0]:.2f}x), p99 {quiet[1]:.1f} -> {busy[1]:.1f} ms ({busy[1] / quiet[1]:.2f}x)"
    )
