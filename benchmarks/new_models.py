"""Names nobody has seen before, by the thousand, under a pattern: how fast one worker process begins them, how soon it
ends when told to, and what lies beyond ``max_models``."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import processes
from deploy.local import ValkeyServer
from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.files.source import FileSink
from omdml.streams.protocols.store import Store
from omdml.streams.stores.opening import open_store

DIMS, RANK, ITEMS = {"color": 64, "shape": 32, "text": 16}, 16, 2_000
MODELS = int(os.environ.get("OMDML_NEW_MODELS", "3000"))
LIMIT = MODELS // 3
PATIENCE_S = 300.0


def main(console: Console) -> None:
    table = Table("store", "begun /s", "saved /s", "CPU a model", "SIGTERM amid it", "limit", "letters")
    table.title = f"{MODELS:,} new models of {', '.join(map(str, DIMS.values()))} -> {RANK}, one event each, one worker"
    with tempfile.TemporaryDirectory() as name, ValkeyServer() as valkey:
        for kind, url in (("Valkey", valkey.url), ("folder", "dir:state")):
            folder = Path(name) / kind
            folder.mkdir()
            table.add_row(kind, *measured(folder, url if url != "dir:state" else f"dir:{folder / 'state'}"))
    console.print(table)


def measured(folder: Path, url: str) -> list[str]:
    """A row: a worker stopped amid new models, another one that ends them, and one with a limit."""
    draw = np.random.default_rng(0)
    build_catalogue(folder / "items", {name: draw.normal(0, 1, (ITEMS, size)) for name, size in DIMS.items()})
    send(folder / "feedback", "user", MODELS)
    store, worker = open_store(url), started(folder, url, 10 * MODELS)
    wait_until(lambda: listed(store) >= MODELS // 10)
    asked = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    worker.wait(PATIENCE_S)
    ended = time.monotonic() - asked
    already = listed(store)
    worker = started(folder, url, 10 * MODELS)
    wait_until(lambda: listed(store) > already)
    began, cpu = time.monotonic(), cpu_seconds(worker.pid)
    wait_until(lambda: listed(store) >= MODELS)
    begun = (MODELS - already) / (time.monotonic() - began)
    wait_until(lambda: len(store.positions([f"user-{number}" for number in range(MODELS)])) >= MODELS)
    saved = (MODELS - already) / (time.monotonic() - began)
    cost = (cpu_seconds(worker.pid) - cpu) / (MODELS - already)
    worker.send_signal(signal.SIGTERM)
    worker.wait(PATIENCE_S)
    refused = limited(folder, url)
    return [f"{begun:,.0f}", f"{saved:,.0f}", f"{cost * 1000:.1f} ms", f"{ended:.1f} s", *refused]


def limited(folder: Path, url: str) -> list[str]:
    """What a worker does with many names if it may begin only a few."""
    send(folder / "feedback", "other", MODELS)
    letters = folder / "letters"
    worker = started(folder, url, MODELS + LIMIT)
    wait_until(lambda: too_many(letters) >= MODELS - LIMIT)
    worker.send_signal(signal.SIGTERM)
    worker.wait(PATIENCE_S)
    return [f"{LIMIT:,} more", f"{too_many(letters):,} of {MODELS:,}"]


def send(path: Path, prefix: str, count: int) -> None:
    """One event of each of so many models."""
    sink, draw = FileSink(path), np.random.default_rng(1)
    for number in range(count):
        query, relevant, irrelevant = map(str, draw.integers(0, ITEMS, 3).tolist())
        event = Triplet(model=f"{prefix}-{number}", query=query, relevant=relevant, irrelevant=irrelevant)
        sink.send(encode(event), key=event.model)
    sink.close()


def started(folder: Path, url: str, limit: int) -> subprocess.Popen[bytes]:
    (folder / "omdml.toml").write_text(
        f'[log]\nkind = "file"\npath = "feedback"\nletters = "letters"\n[store]\nurl = "{url}"\n'
        f'[catalogues.items]\npath = "items"\n[models."*"]\nlearner = "lomdml"\nrank = {RANK}\nmax_models = {limit}\n'
    )
    return processes.start(folder, "worker")


def listed(store: Store) -> int:
    """How many models are in the store."""
    return len(store.models())


def too_many(letters: Path) -> int:
    """How many letters say that there are too many models."""
    return sum(path.read_bytes().count(b'"reason":"too_many_models"') for path in letters.rglob("*") if path.is_file())


def cpu_seconds(pid: int) -> float:
    """Processor time that a process took so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not within {PATIENCE_S:.0f} s: see worker.log")
        time.sleep(0.1)
