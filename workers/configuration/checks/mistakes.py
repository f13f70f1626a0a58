"""Collects what is wrong, so that somebody who corrects a configuration hears of all of it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from omdml.errors import ConfigurationError


class Mistakes:
    """The mistakes found so far. A check goes on after one unless what it would say next only follows from it."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the ConfigurationError that the block raises, and go on after the block."""
        try:
            yield
        except ConfigurationError as error:
            self.mistakes += error.mistakes

    def note(self, mistake: str) -> None:
        self.mistakes.append(mistake)

    def report(self) -> None:
        """Raise ConfigurationError if there is any."""
        if self.mistakes:
            raise ConfigurationError(*self.mistakes)
