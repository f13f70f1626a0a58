"""Refused events on their way to the dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from omdml.errors import SourceError
from streams.letters import DeadLetters
from workers.intake import Refusal, kind_of
from workers.metrics import WorkerMetrics
from workers.specs import Specs

FLUSH_S = 30.0  # that the dead letters' sink may take


class Burial:
    """The refused events of one partition: what the dead letters cannot take for now stays here."""

    def __init__(self, letters: DeadLetters, specs: Specs, metrics: WorkerMetrics) -> None:
        self._letters, self._specs, self._metrics = letters, specs, metrics
        self._refused: list[Refusal] = []

    def add(self, refused: Iterable[Refusal]) -> None:
        """Note refusals; nothing is written yet."""
        self._refused += refused

    def send(self) -> None:
        """Send what is noted; raises SourceError where the sink can take no more for now."""
        while self._refused:
            record, error, name = self._refused[0]
            with burying():
                self._letters.add(record, error, name)
            spec = self._specs.find(name) if name else None
            self._metrics.refused(spec.label if spec else "unknown", kind_of(record), error.reason)
            del self._refused[0]

    def finish(self, limit_s: float = FLUSH_S) -> None:
        """Return when all of it is acknowledged; raises SourceError where that is not so in time."""
        self.send()
        with burying():
            self._letters.flush(max(0.0, min(FLUSH_S, limit_s)))


@contextmanager
def burying() -> Iterator[None]:
    """Say in errors that it is the dead letters that cannot be written, which nobody asked for by name."""
    try:
        yield
    except SourceError as error:
        raise type(error)(f"dead letters: {error}") from error
