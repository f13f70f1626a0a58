"""What the store in a folder costs beside Valkey: a publication, its way to another process, a save, and a start with
thousands of models."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from deploy.local import ValkeyServer
from omdml.metrics import ProjectionMetric
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.protocols.store import Store
from omdml.streams.stores.opening import open_store

# Rank and dimensions of a model.
LARGE, SMALL = (50, 3209), (16, 112)
ROUNDS, MODELS = 100, int(os.environ.get("OMDML_STORED_MODELS", "5000"))
# Number of models that a worker writes together.
PORTION = 50
PAUSE_S = 0.02


def main(console: Console) -> None:
    with tempfile.TemporaryDirectory() as name, ValkeyServer() as valkey:
        urls = {"folder": f"dir:{name}/state", "Valkey": valkey.url}
        figures = {kind: {**one_model(url), **many_models(open_store(url))} for kind, url in urls.items()}
    table = Table("milliseconds", *urls, "folder / Valkey")
    table.title = f"a model of {LARGE[1]:,} -> {LARGE[0]}; {MODELS:,} of {SMALL[1]} -> {SMALL[0]}"
    for row, folder_ms in figures["folder"].items():
        valkey_ms = figures["Valkey"][row]
        table.add_row(row, f"{folder_ms:,.1f}", f"{valkey_ms:,.1f}", f"{folder_ms / valkey_ms:.2f}")
    console.print(table)


def one_model(url: str) -> dict[str, float]:
    """Median times of a large model whose versions another process follows."""
    store, draw, context = open_store(url), np.random.default_rng(0), multiprocessing.get_context("spawn")
    epoch, ready, arrivals = store.claim("shop").epoch, context.Event(), context.Queue()
    follower = context.Process(target=follow, args=(url, ready, arrivals))
    follower.start()
    ready.wait()
    sent, publications = {}, []
    for version in range(1, ROUNDS + 1):
        published = snapshot("shop", version, LARGE, draw)
        time.sleep(PAUSE_S)
        sent[version] = time.monotonic()
        publications.append(timed(store.publish, published, epoch))
    ways = []
    while not ways or version < ROUNDS:
        version, arrived = arrivals.get()
        ways.append(1000 * (arrived - sent[version]))
    follower.join()
    saves = [timed(store.save, checkpoint("shop", offset, LARGE, draw), epoch) for offset in range(ROUNDS)]
    loads = [timed(store.load, "shop") for _ in range(ROUNDS)]
    rows = {"publication": publications, "publication to loaded": ways, "save": saves, "load": loads}
    return {name: statistics.median(times) for name, times in rows.items()}


def follow(url: str, ready: Any, arrivals: Any) -> None:
    """Run as another process: load what goes live, and report when it was loaded."""
    store, version = open_store(url), 0
    watch = store.watch(["shop"])
    ready.set()
    while version < ROUNDS:
        if watch.wait(10) and (loaded := store.load("shop")):
            version = loaded[1].version
            arrivals.put((version, time.monotonic()))


def many_models(store: Store) -> dict[str, float]:
    """The total time of each operation on thousands of models, in portions as a worker makes them."""
    names, draw = [f"user-{number}" for number in range(MODELS)], np.random.default_rng(1)
    epochs: dict[str, str] = {}

    def claim(portion: Sequence[str]) -> None:
        claims = store.claim_all(portion)
        epochs.update((name, claim.epoch) for name, claim in zip(portion, claims, strict=True))

    def in_portions(act: Callable[[Any], object], every: Sequence[Any]) -> float:
        return sum(timed(act, every[first : first + PORTION]) for first in range(0, len(every), PORTION))

    results = {"claims of new models": in_portions(claim, names)}
    for row, offset in (("their first saves", 1), ("saves again", 2)):
        saves = [(checkpoint(name, offset, SMALL, draw), epochs[name]) for name in names]
        results[row] = in_portions(store.save_all, saves)
    publications = [(snapshot(name, 1, SMALL, draw), epochs[name], "") for name in names]
    results["their publications"] = in_portions(store.publish_all, publications)
    results["claims after a restart"] = in_portions(claim, names)
    results["positions"] = timed(store.positions, names)
    results["live pointers"] = timed(store.current_all, names)
    return results


def timed(act: Callable[..., object], *arguments: Any) -> float:
    """Call the function once; returns how many milliseconds it took."""
    began = time.perf_counter()
    act(*arguments)
    return 1000 * (time.perf_counter() - began)


def checkpoint(model: str, offset: int, shape: tuple[int, int], draw: np.random.Generator) -> Checkpoint:
    """A checkpoint with a random state."""
    state = draw.bytes(4 * shape[0] * shape[1])
    return Checkpoint(
        model=model, home=("log", 0), next=offset, version=offset, generation="g", configuration="c", platform="p",
        event_time=1.0, progress={}, state=state,
    )  # fmt: skip


def snapshot(model: str, version: int, shape: tuple[int, int], draw: np.random.Generator) -> Snapshot:
    """A snapshot with a random matrix."""
    metric = ProjectionMetric({"color": 1.0}, {"color": draw.standard_normal(shape, dtype=np.float32)})
    return Snapshot(
        model=model, learner="lomdml", version=version, generation="g", event_time=None, oldest_event_time=None,
        progress={}, metric=metric,
    )  # fmt: skip
