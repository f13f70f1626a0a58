"""Validate events and send them to the feedback log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from typing import IO, NamedTuple

from omdml.comparisons import conversion
from omdml.errors import FeedbackError, SourceError
from omdml.feedback import MAX_EVENT_BYTES, ONLY_TASK, AnyFeedback, Page, Pair, decode, kind_of
from omdml.learners.shared.pairs import task_numbers
from omdml.streams.catalogues.inline import InlineTable
from omdml.streams.protocols.log import Sink
from omdml.workers.configuration.model_names import check_name
from omdml.workers.configuration.specs import Spec, Specs
from omdml.workers.configuration.wording import amount
from omdml.workers.events.decoding import unknown_model
from omdml.workers.events.lookup import compared, learned_of_page
from omdml.workers.events.unread_fields import UnreadFields

# At most this many refused lines are reported.
SHOWN = 20
# White space around the event is included.
MAX_LINE_BYTES = 2 * MAX_EVENT_BYTES
ENDLESS_BYTES = 1 << 30
# Events between two flushes. After an error it is unknown which of these are in the log.
FLUSH_EVERY = 1000


class RefusedLine(NamedTuple):
    """A line that was not sent."""

    line: int
    error: FeedbackError


class Fed(NamedTuple):
    """How many lines of each kind were accepted, the first ones that were refused, and fields that nothing reads."""

    accepted: Counter[str]
    refused: list[RefusedLine]
    total_refused: int
    unread: UnreadFields

    @property
    def kinds(self) -> str:
        """How many of each kind were accepted, in words."""
        return ", ".join(amount(count, kind) for kind, count in sorted(self.accepted.items())) or "nothing"


def validate(payload: bytes, specs: Specs) -> AnyFeedback:
    """The event in a payload, as a worker with these models would take it; raises FeedbackError."""
    event = decode(payload)
    check(event, specs)
    return event


def check(event: AnyFeedback, specs: Specs) -> None:
    """Raise FeedbackError if a worker with these models would not learn the event."""
    check_name(event.model)
    spec = specs.find(event.model)
    if spec is None:
        raise unknown_model(event.model, specs.configuration.models)
    ids = learned_ids(event, spec)
    compared(event, ids, spec.learner.width, InlineTable(spec.catalogue), spec.catalogue)
    if isinstance(event, Pair):
        task_numbers(event.task, spec.parameters.get("tasks") or [ONLY_TASK], 1)


def learned_ids(event: AnyFeedback, spec: Spec) -> list[str]:
    """The items of the comparisons that a worker would learn of an event; raises FeedbackError."""
    ids = conversion(spec.learner.accepts)(event)
    if isinstance(event, Page):
        ids = list(compress(ids, learned_of_page(event, ids, spec.catalogue.rows(ids), spec.learner.width)))
    return ids


def send_events(
    lines: Iterable[tuple[int, bytes | FeedbackError]], specs: Specs, sink: Sink | None, name: str = "input"
) -> Fed:
    """Send the sound events of an input.

    ``lines`` has each event, or the error about what is none, with the number of the line at which it begins. Blank
    lines are skipped. Without a sink nothing is sent. If the log or the lines fail, the error also says at which line
    of the input of this ``name`` to go on.
    """
    accepted: Counter[str] = Counter()
    refused: list[RefusedLine] = []
    unread = UnreadFields()
    total_refused = 0
    # The line at hand, and the line up to which everything is in the log.
    number = flushed = 0
    try:
        for number, line in lines:
            try:
                if isinstance(line, FeedbackError):
                    raise line
                payload = line.strip()
                if not payload:
                    continue
                event = validate(payload, specs)
            except FeedbackError as error:
                total_refused += 1
                if total_refused <= SHOWN:
                    refused.append(RefusedLine(number, error))
                continue
            if sink is not None:
                sink.send(payload, key=event.model)
            accepted[kind_of(event)] += 1
            unread.add(payload, event)
            if sink is not None and accepted.total() % FLUSH_EVERY == 0:
                sink.flush()
                flushed = number
        if sink is not None:
            sink.flush()
    except (SourceError, FeedbackError) as error:
        if sink is not None and accepted:
            error.args = (f"{error}; {interrupted(name, flushed, number)}",)
        raise
    return Fed(accepted, refused, total_refused, unread)


def interrupted(name: str, flushed: int, number: int) -> str:
    """A message about an interrupted input: up to which line it is certainly in the log, and up to which it may be."""
    next_line = flushed + 1
    return (
        f"{name} was sent up to line {flushed} and perhaps further, up to line {number}: go on at line "
        f'{next_line} (tail -n +{next_line}). What is sent twice is learned twice, unless it has an "id"'
    )


def bounded_lines(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, a pipe or standard input. One that is too long is cut, and will be refused as oversize.

    Raises FeedbackError if a line does not end at all.
    """
    number = 0
    while line := file.readline(MAX_LINE_BYTES):
        number, size = number + 1, len(line)
        end = line
        while not end.endswith(b"\n") and (end := file.readline(MAX_LINE_BYTES)):
            size += len(end)
            if size > ENDLESS_BYTES:
                raise FeedbackError(
                    f"{file.name}: line {number} has no end within {ENDLESS_BYTES:,} bytes, expected one event a line",
                    reason="oversize",
                )
        yield line
