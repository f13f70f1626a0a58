"""``python -m tests.fault.attacks [MODULE ...]``: attacks the service as outsiders did; prints what held."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
from pathlib import Path

from rich.table import Table

from benchmarks.record import RecordingConsole
from tests.fault.attacks.attack import Attack, Measured, attacks


def main(arguments: list[str]) -> int:
    """Run attacks and print the table; answers the exit code: 1 if a bound is broken."""
    modules = attacks()
    console = RecordingConsole(width=None if sys.stdout.isatty() else 160)
    table, sound = Table("attack", "bound", "measured", "held", title="Attacks"), True
    for name in chosen(arguments, list(modules)):
        for attack in modules[name]:
            measured = outcome(attack)
            row = (f"{name}: {attack.name}", attack.bound, measured.value, attack.verdict(measured))
            table.add_row(*row)
            console.print("; ".join(row), markup=False)
            sound &= measured.held
    console.print(table)
    console.save("attacks")
    return int(not sound)


def chosen(arguments: list[str], modules: list[str]) -> list[str]:
    """The modules that are asked for."""
    parser = argparse.ArgumentParser(prog="tests.fault.attacks", description="What attackers can do to a service.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(modules)}; all by default")
    asked: list[str] = parser.parse_args(arguments).modules
    for name in asked:
        if name not in modules:
            parser.error(f"no module {name!r}: there are {', '.join(modules)}")
    return asked or modules


def outcome(attack: Attack) -> Measured:
    """The outcome of an attack that runs in a process of its own.

    A command inherits its parent's peak of memory, which must not be the peak of another attack.
    """
    fork = multiprocessing.get_context("fork")
    answer, end = fork.Pipe(duplex=False)
    process = fork.Process(target=lambda: end.send(carried_out(attack)))
    process.start()
    end.close()
    try:
        return answer.recv()  # type: ignore[no-any-return]
    except EOFError:
        return Measured("could not be carried out: its process died", held=False)
    finally:
        process.join()


def carried_out(attack: Attack) -> Measured:
    """The outcome of an attack; if it could not be carried out, its bound counts as broken."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return attack.run(Path(folder))
        except Exception as error:
            return Measured(f"could not be carried out: {type(error).__name__}: {error}", held=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
