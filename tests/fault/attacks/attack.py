"""What an attack is. A module of this package lists some in ``ATTACKS``; the table and the tests take them from there.

A module looks like this::

    def endless_trailers(folder: Path) -> Measured:
        with node(folder) as url:
            grown = ...  # attack it, and measure
        return Measured(f"{grown} MB", held=grown < 50)

    ATTACKS = [
        Attack("endless trailers", "memory grows by less than 50 MB", endless_trailers, quick=True),
    ]
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


class Measured(NamedTuple):
    """The outcome of an attack: the measured value in words, with its unit, and whether the bound held."""

    value: str
    held: bool


@dataclass(frozen=True)
class Attack:
    """One way to harm a service, and how much harm it may do.

    Parameters
    ----------
    name
        What is done, in a few words; it has to be unique within its module.
    bound
        What must hold, in words and with a figure: "memory grows by less than 50 MB".
    run
        Attacks, and answers what was measured. It is given an empty folder of its own, starts what it attacks, ends it
        again, and takes a bounded time. If it cannot be carried out at all, it raises.
    named_limit
        Whether the bound is one that docs/promises.md names as a limit: more harm than the service should allow, as
        measured. The attack holds if the harm has not become worse.
    quick
        Whether CI runs it as a test: it takes less than about ten seconds, and needs no server but those of the tests.
    """

    name: str
    bound: str
    run: Callable[[Path], Measured]
    quick: bool = False
    named_limit: bool = False

    def verdict(self, measured: Measured) -> str:
        """The outcome in a word or two, for the table."""
        return "BROKEN" if not measured.held else "named limit" if self.named_limit else "held"


def attacks() -> dict[str, list[Attack]]:
    """The attacks of every module of this package that lists some, by the module's name."""
    package = __name__.rpartition(".")[0]
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    # __main__ is not imported: it would run.
    modules = {name: importlib.import_module(f"{package}.{name}") for name in names if name != "__main__"}
    return {name: module.ATTACKS for name, module in modules.items() if hasattr(module, "ATTACKS")}
