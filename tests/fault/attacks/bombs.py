"""Events and files that are small and mean a lot: what they cost a worker, ``omdml feed`` and a catalogue's build."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from omdml.streams.files.lines import encode_line
from tests.fault.attacks.attack import Attack, Measured
from tests.fault.attacks.measuring import omdml
from tests.fault.attacks.store import CONFIGURATION
from tests.support import worlds
from tests.support.files import catalogue_bombs

MORE_MB = 150
DIGITS = b"9" * 5000
MEGABYTE = 1 << 20


def event(**fields: object) -> bytes:
    """An encoded triplet whose fields are replaced by these."""
    return msgspec.json.encode({"type": "triplet", "model": "shop", "query": "i1", "relevant": "i2", **fields})


def bombs() -> Iterator[bytes]:
    """Events that must become dead letters, a few of each kind."""
    ids = [f"i{number}" for number in range(1_000_000)]
    for turn in range(20):
        yield b"[" * MEGABYTE
        yield b'{"a":' * 150_000
        yield event(irrelevant="i3").replace(b'"i3"', DIGITS)
        yield event(irrelevant="i3", at=5).replace(b'"at":5', b'"at":' + DIGITS)
        yield event(irrelevant="i3", at=5).replace(b'"at":5', b'"at":1e' + DIGITS)
        yield event(irrelevant=f"i{turn}", features={"new": {"shape": [0.0] * 200_000}})
        yield event(irrelevant="i3", features={f"n{number}": {"shape": [1]} for number in range(30_000)})
        yield msgspec.json.encode({"type": "ranking", "model": "shop", "query": "i1", "relevant": ids[:60_000],
                                   "irrelevant": ids[60_000:120_000]})  # fmt: skip
        yield event(irrelevant="x" * (MEGABYTE - 200))
        yield event(irrelevant="i3", model="m" * (MEGABYTE - 200))
    yield msgspec.json.encode({"type": "ranking", "model": "shop", "query": "i1", "relevant": ids, "irrelevant": ids})


def installation(folder: Path) -> None:
    """Build a catalogue and write a configuration that names it."""
    worlds.catalogue(folder / "items")
    (folder / "omdml.toml").write_text(CONFIGURATION)


def lines(folder: Path, events: Iterator[bytes]) -> int:
    """Write a log of sound events with ``events`` among them; returns how many ``events`` there were."""
    sound, count = list(worlds.events(400)), 0
    (folder / "feedback").mkdir()
    with (folder / "feedback" / "00000001.jsonl").open("wb") as file:
        file.writelines(encode_line(event, 1.5, "shop") for event in sound[:200])
        for count, bomb in enumerate(events, start=1):  # noqa: B007
            file.write(encode_line(bomb, 1.5, "shop"))
        file.writelines(encode_line(event, 1.5, "shop") for event in sound[200:])
    return count


def feedback_bombs(folder: Path) -> Measured:
    """A worker on a log with bombs, compared with one on sound events alone."""
    with contextlib.redirect_stdout(None):
        (folder / "plain").mkdir()
        (folder / "bombs").mkdir()
        for place in (folder / "plain", folder / "bombs"):
            installation(place)
    lines(folder / "plain", iter(()))
    count = lines(folder / "bombs", bombs())
    plain = omdml(folder / "plain", "replay", "--model", "shop")
    run = omdml(folder / "bombs", "worker", until="dead_letters")
    replayed = omdml(folder / "bombs", "replay", "--model", "shop")
    letters = omdml(folder / "bombs", "letters", "list", "--last", "5")
    more = max(run.megabytes, replayed.megabytes) - plain.megabytes
    withstood = not any(entry.failed_badly for entry in (plain, run, replayed, letters)) and more < MORE_MB
    outcome = f"{more:.0f} MB more than {plain.megabytes:.0f}; {count} bombs; worker ended with {run.code} after "
    return Measured(f"{outcome}{run.seconds:.0f} s, replay after {replayed.seconds:.0f} s", withstood)


def fed(write: Callable[[Path], None]) -> Callable[[Path], Measured]:
    """An attack by a file that ``write`` makes: ``omdml feed`` must refuse it."""

    def attack(folder: Path) -> Measured:
        installation(folder)
        write(folder / "clicks.jsonl")
        run = omdml(folder, "feed", "--dry-run", "clicks.jsonl")
        withstood = not run.failed_badly and run.code == 1 and run.megabytes < 300 + MORE_MB
        return Measured(f"exit code {run.code} after {run.seconds:.1f} s, {run.megabytes:.0f} MB", withstood)

    return attack


def an_endless_line(path: Path) -> None:
    """Write four gigabytes without a newline."""
    with path.open("wb") as file:
        file.truncate(4 << 30)


def every_bomb(path: Path) -> None:
    with path.open("wb") as file:
        file.writelines(bomb + b"\n" for bomb in bombs())


def built(bomb: catalogue_bombs.Bomb, told: str) -> Callable[[Path], Measured]:
    """``omdml catalogue build`` from a file that claims to be huge, under a limit of memory."""

    def attack(folder: Path) -> Measured:
        code, output = catalogue_bombs.build(bomb(folder), folder / "items")
        return Measured(
            f"exit code {code}: {output.strip()[-120:]}", code == 2 and told in output and "Traceback" not in output
        )

    return attack


BUILT = f"refused with limit and got, in less than {catalogue_bombs.LIMIT} MB"
FED = f"feed refuses it, in less than {300 + MORE_MB} MB"
ATTACKS = [
    Attack("201 bombs among sound events", f"less than {MORE_MB} MB more than sound events take", feedback_bombs),
    Attack("feed: a line of 4 GB", FED, fed(an_endless_line)),
    Attack("feed: every bomb", FED, fed(every_bomb)),
    *(
        Attack(f"catalogue: {bomb.__name__.replace('_', ' ')}", BUILT, built(bomb, told),
               quick=bomb in (catalogue_bombs.a_trillion_rows, catalogue_bombs.a_long_id_in_every_row))
        for bomb, told in catalogue_bombs.REFUSED
    ),
]  # fmt: skip
