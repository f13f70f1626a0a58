"""What is no sound file in a state folder, a catalogue or the place of a secret: every command that reads it."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry

from omdml.workers.configuration.loading import load
from omdml.workers.wiring.feedback_log import open_sink
from omdml.workers.wiring.worker import build_worker
from tests.fault.attacks.attack import Attack, Measured
from tests.fault.attacks.measuring import Run, omdml
from tests.support import worlds
from tests.support.files.misfits import device, huge, loop, pipe

MOST_MB, MOST_S = 400, 20
BOUND = f"each command ends, within {MOST_S} s of processor time and {MOST_MB} MB, without a traceback"
CONFIGURATION = """
[log]
path = "feedback/"
letters = "letters/"
[store]
url = "dir:state"
[catalogues.items]
path = "items/"
[models.shop]
learner = "lomdml"
rank = 3
[guard]
on = false
"""

Put = Callable[[Path], None]
STATE = ("*.checkpoint", "*.safetensors", "models/shop/history/*.json", "store-id", "format", "marks/*")
READERS = {
    "state": (("models", "list"), ("history", "shop"), ("inspect", "shop")),
    "items": (("doctor",),),
    "token": (("doctor",),),
}


def installation(folder: Path) -> None:
    """A catalogue, a log of 200 events and a state that a worker made of them."""
    worlds.catalogue(folder / "items")
    (folder / "omdml.toml").write_text(CONFIGURATION)
    with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        configuration = load("omdml.toml", {})
        sink = open_sink(configuration.log)
        sink.send_many([(event, "shop") for event in worlds.events(200)])
        sink.close()
        worker = build_worker(configuration, CollectorRegistry())
        learned = 0
        for _ in itertools.repeat(None, 200):
            worker.step()
            loaded = [part.models.loaded for part in worker.partitions.values() if part.models.loaded]
            learned = max((models["shop"].learner.version for models in loaded), default=0)
            if learned == 200:
                break
        worker.schedule.finish()
        worker._close()
    assert learned == 200


def newest(folder: Path, pattern: str) -> Path:
    """The last file of this kind in the state."""
    return max((folder / "state").rglob(pattern) if "/" not in pattern else (folder / "state").glob(pattern))


def verdict(runs: Iterable[tuple[str, Run]]) -> Measured:
    """The worst of all runs, and which of them broke the bound."""
    every = list(runs)
    bad = [f"{name}: {run.output[-200:]}" for name, run in every
           if run.failed_badly or run.megabytes > MOST_MB or run.seconds > MOST_S]  # fmt: skip
    most = f"{len(every)} commands, at most {max(run.seconds for _, run in every):.1f} s and "
    most += f"{max(run.megabytes for _, run in every):.0f} MB"
    return Measured("; ".join([most, *bad]), held=not bad)


def each(put: Put, state: tuple[str, ...] = STATE) -> Callable[[Path], Measured]:
    """Put something in the place of one file after another, and call what reads it."""

    def attack(folder: Path) -> Measured:
        installation(folder)
        runs = []
        for pattern in state:
            shutil.copytree(folder / "state", folder / "sound")
            put(newest(folder, pattern))
            # the last of these commands reads a snapshot, the first a checkpoint and the history
            for command in READERS["state"][:: 2 if pattern.endswith(("checkpoint", "safetensors")) else 3]:
                runs.append((f"{pattern}: {' '.join(command)}", omdml(folder, *command)))
            shutil.rmtree(folder / "state")
            (folder / "sound").rename(folder / "state")
        return verdict(runs)

    return attack


def elsewhere(folder: Path) -> Measured:
    """Pipes, devices and huge files stand where parts of the catalogue or the token should be."""
    installation(folder)
    runs = []
    sound = (folder / "omdml.toml").read_text()
    for put in (pipe, device, huge):
        for name in ("catalogue.json", "ids.txt", "shape.npy", "sets.jsonl"):
            shutil.copytree(folder / "items", folder / "kept")
            put(folder / "items" / name)
            runs.append((f"{put.__name__} as {name}", omdml(folder, "doctor")))
            shutil.rmtree(folder / "items")
            (folder / "kept").rename(folder / "items")
        put(folder / "token")
        (folder / "omdml.toml").write_text(sound + '[node]\ntoken_file = "token"\n')
        runs.append((f"{put.__name__} as token", omdml(folder, "doctor")))
        (folder / "omdml.toml").write_text(sound)
        (folder / "token").unlink()
    return verdict(runs)


def worker_goes_on(folder: Path) -> Measured:
    """A worker whose newest checkpoint became a pipe learns on from the one before, to the end of the log."""
    installation(folder)
    pipe(newest(folder, "*.checkpoint"))
    with contextlib.chdir(folder):
        sink = open_sink(load("omdml.toml", {}).log)
        sink.send_many([(event, "shop") for event in worlds.events(100, seed=1)])
        sink.close()
    run = omdml(folder, "worker", limit_s=90, until="checkpoint_damaged")
    outcome = f"exit code {run.code} after {run.seconds:.1f} s, {run.megabytes:.0f} MB"
    return Measured(outcome, held=run.code == 0 and "drained_and_saved" in run.output and run.megabytes < MOST_MB)


def cut(path: Path) -> None:
    """The first half of the file."""
    os.truncate(path, path.stat().st_size // 2)


def flipped(path: Path) -> None:
    """One bit in the middle is another."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


def digits(path: Path) -> None:
    path.write_text("9" * 5000)


FIRST = ("*.checkpoint",)
ATTACKS = [
    Attack("a named pipe as the newest checkpoint", BOUND, each(pipe, FIRST), quick=True),
    Attack("named pipes in the state", BOUND, each(pipe)),
    Attack("devices in the state", BOUND, each(device)),
    Attack("links to themselves in the state", BOUND, each(loop)),
    Attack("files of a terabyte in the state", BOUND, each(huge)),
    Attack("files cut in half in the state", BOUND, each(cut)),
    Attack("flipped bits in the state", BOUND, each(flipped)),
    Attack("numbers of 5,000 digits in the state", BOUND, each(digits)),
    Attack("pipes, devices and a terabyte as catalogue or token", BOUND, elsewhere),
    Attack(
        "a worker whose newest checkpoint is a named pipe",
        f"it learns on from the one before, in less than {MOST_MB} MB",
        worker_goes_on,
    ),
]
