"""What a check of an installation finds: how bad it is, and what to do."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple

from omdml.errors import OmdmlError


class Level(enum.StrEnum):
    """How bad a finding is.

    A warning is something that a person should look at, while events are learned and searches answered all the same.
    An error means that events are not learned, that nodes do not serve what they should, or that data may be lost.
    """

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


class Finding(NamedTuple):
    """One finding of a check; ``text`` is what was seen and, unless all is well, what to do."""

    check: str
    level: Level
    text: str

    @property
    def well(self) -> bool:
        """Whether nothing is to be done."""
        return self.level is Level.OK


class Remark(NamedTuple):
    """What a check says besides "ok": the level and the text of one finding."""

    level: Level
    text: str


def warning(text: str) -> Remark:
    """Something that a person should look at."""
    return Remark(Level.WARNING, text)


def error(text: str) -> Remark:
    """Something that has to be fixed."""
    return Remark(Level.ERROR, text)


def run_check(check: str, examine: Callable[[], str | Iterable[Remark]]) -> list[Finding]:
    """Run one check; returns at least one finding, whatever happens.

    A check answers with one text if all is well, otherwise with its remarks. What it raises is an error.
    """
    try:
        seen = examine()
        if isinstance(seen, str):
            return [Finding(check, Level.OK, seen)]
        return [Finding(check, remark.level, remark.text) for remark in seen]
    except OmdmlError as problem:
        return [Finding(check, Level.ERROR, str(problem))]
    except Exception as problem:
        # The doctor also reports errors that nobody foresaw.
        sentence = f"{type(problem).__name__}: {problem}; omdml does not foresee this: report it"
        return [Finding(check, Level.ERROR, sentence)]


def all_well(findings: Iterable[Finding]) -> bool:
    """Whether none of these is an error: what depends on this check can be looked at."""
    return all(finding.level is not Level.ERROR for finding in findings)
