"""What a filter costs a search: 100,000 items of 128 coordinates, by the share of items that match."""

from __future__ import annotations

import json
import time

import numpy as np
from rich.console import Console

from omdml.metrics import ProjectionMetric
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.galleries.gallery import Gallery, Query

ITEMS, COORDINATES, K = 100_000, 128, 20
SHARES = (0.0001, 0.001, 0.01, 0.1, 0.2, 0.5, 0.9, 1.0)
ROUNDS = 120


class Ids:
    """The part of a catalogue that attributes need."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids


def main(console: Console) -> None:
    """Print p50 and p99 of searches with a filter and without, in turn."""
    console.rule("filters")
    draw = np.random.default_rng(0)
    matrix = draw.normal(size=(ITEMS, COORDINATES)).astype(np.float32)
    gallery = Gallery(ProjectionMetric({"x": 1.0}, {"x": np.eye(COORDINATES, dtype=np.float32)}), {"x": matrix})
    ids = [f"i{number}" for number in range(ITEMS)]
    began = time.perf_counter()
    table = Attributes(
        (json.dumps({"id": name, "at": place, "brand": f"b{place * 1000:.0f}"}).encode() for name, place in
         zip(ids, draw.random(ITEMS).tolist(), strict=True)), "benchmark",
    )  # fmt: skip
    catalogue = Ids(ids)
    console.print(f"{ITEMS:,} lines of attributes read in {time.perf_counter() - began:.2f} s")
    took: dict[float | None, list[float]] = {share: [] for share in (None, *SHARES)}
    first: list[float] = []
    for number in range(ROUNDS):
        for share, times in took.items():
            began = time.perf_counter()
            among = None
            if share is not None:
                # Every other round asks something new, so that its mask must be made.
                asked = {"at": {"lt": share + 1e-9 * (number // 2)}, "brand": {"exists": True}}
                among = table.mask(asked, catalogue, ITEMS)  # type: ignore[arg-type]
                first += [time.perf_counter() - began] if number % 2 == 0 and number else []
            gallery.nearest(Query(np.array([number]), among=among), K)
            times.append(time.perf_counter() - began)
    plain = float(np.percentile(took[None], 50))
    for share, times in took.items():
        p50, p99 = np.percentile(times, [50, 99])
        name = "no filter" if share is None else f"{share:.2%} match"
        console.print(f"{name:>16}: p50 {p50 * 1e3:6.2f} ms, p99 {p99 * 1e3:6.2f} ms, {p50 / plain:.2f}x")
    longest = max(float(np.percentile(took[share], 50)) for share in SHARES) / plain
    console.print(f"a search with a filter takes at most {longest:.2f} times as long as one without (p50)")
    console.print(f"a mask that is new costs {np.percentile(first, 50) * 1e3:.2f} ms (p50)")
