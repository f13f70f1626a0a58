"""Refused events on their way to the dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from omdml.errors import SourceError, SourceRefused
from omdml.streams.letters import DeadLetters
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import UNKNOWN, Refusal, kind_of_record
from omdml.workers.events.refusal_log import RefusalLog
from omdml.workers.learning.metrics import WorkerMetrics

# Seconds that the sink of dead letters may take.
FLUSH_S = 30.0


class LettersAway(SourceError):
    """The dead letters cannot be written for now."""


class PendingLetters:
    """The refused events of one partition, until the dead letters have taken them."""

    def __init__(self, letters: DeadLetters, specs: Specs, metrics: WorkerMetrics, refusal_log: RefusalLog) -> None:
        self._letters, self._specs, self._metrics, self._refusal_log = letters, specs, metrics, refusal_log
        self._refused: list[Refusal] = []

    def add(self, refused: Iterable[Refusal]) -> None:
        """Note refusals; nothing is written yet."""
        self._refused += refused

    def send(self) -> None:
        """Send what is noted; raises SourceError if the sink can take no more for now."""
        while self._refused:
            with naming_dead_letters():
                count = self._letters.add_many(refusal[:3] for refusal in self._refused)
            self._count(self._refused[:count])
            del self._refused[:count]

    def _count(self, sent: Sequence[Refusal]) -> None:
        counts: Counter[tuple[str | None, str, str]] = Counter()
        for refusal in sent:
            counts[refusal.model, refusal.kind or kind_of_record(refusal.record), refusal.error.reason] += 1
            self._refusal_log.note(refusal)
        for (name, kind, reason), count in counts.items():
            spec = self._specs.find(name) if name else None
            self._metrics.intake.count_refused(spec.label if spec else UNKNOWN, kind, reason, count)

    def flush(self, limit_s: float = FLUSH_S) -> None:
        """Send what is noted and wait until it is acknowledged; raises SourceError if that takes too long."""
        self.send()
        with naming_dead_letters():
            self._letters.flush(max(0.0, min(FLUSH_S, limit_s)))


@contextmanager
def naming_dead_letters() -> Iterator[None]:
    """Make errors say that it is the dead letters which cannot be written. By default, no option names their topic."""
    try:
        yield
    except SourceRefused as error:
        raise SourceRefused(f"dead letters: {error}") from error
    except SourceError as error:
        raise LettersAway(f"dead letters: {error}") from error
