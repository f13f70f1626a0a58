"""What an operator can ask for through a node: the same as ``omdml status``, ``doctor`` and ``letters``, as structs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

import msgspec

from omdml.streams.letters import Book, Letter, read_book
from omdml.streams.newest import Newest
from omdml.workers.configuration.config import Configuration, LinksConfig
from omdml.workers.doctor.checks.installation import examine
from omdml.workers.doctor.status import Inspection, Status
from omdml.workers.operate.letters import (
    UsersRoom,
    chosen,
    fate,
    learnable,
    oldest_first,
    passed_letters,
    position_named,
    resend,
    settle,
    since_then,
)
from omdml.workers.wiring.dead_letters import has_letters, newest_letters, open_sender, read_letters
from omdml.workers.wiring.models import open_specs
from omdml.workers.wiring.stores import open_stores

# Characters of an event that a list of letters shows, and that an explanation shows.
SHOWN, WHOLE = 400, 64_000
# At most this many different reasons for which letters were left are in an answer.
REASONS = 20


class FoundFault(msgspec.Struct, frozen=True):
    """One finding of the doctor: what was checked, ``ok``, ``warning`` or ``error``, and what to do."""

    check: str
    level: str
    text: str


class Health(msgspec.Struct, frozen=True):
    """What ``omdml status --json`` shows, what ``omdml doctor`` finds, and where to read more."""

    status: Status
    findings: list[FoundFault]
    links: LinksConfig


class LetterLine(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter of a list. ``since_then`` is empty while it is open; ``event`` is the beginning of the event."""

    position: str
    at: float | None
    reason: str
    model: str | None
    error: str
    since_then: str
    event: str


class LetterList(msgspec.Struct, frozen=True):
    """The newest of the letters that were asked for, newest first.

    ``reasons`` counts all of them; ``open`` counts those that nobody settled; ``whole`` is false if there are older
    letters that were not looked at.
    """

    letters: list[LetterLine]
    total: int
    open: int
    reasons: dict[str, int]
    models: list[str]
    whole: bool


class LetterInFull(LetterLine, frozen=True, kw_only=True):
    """All that is known of one letter. ``event`` is the whole event. ``learnable`` says whether it would be learned
    now. ``why`` says why not, or what became of it.
    """

    key: str
    headers: dict[str, str]
    learnable: bool
    why: str


class Settled(msgspec.Struct, frozen=True):
    """How many letters were settled, and why others were left."""

    settled: int
    left: dict[str, int] = {}


def health(configuration: Configuration) -> Health:
    """Run the doctor's checks on the whole installation."""
    findings = [FoundFault(check, str(level), text) for check, level, text in examine(configuration)]
    return Health(Inspection(configuration).status(), findings, configuration.links)


def letters(
    configuration: Configuration, reason: str | None, model: str | None, still_open: bool, last: int
) -> LetterList:
    """The newest dead letters, in bounded time."""
    records, whole = newest_letters(configuration.log) if has_letters(configuration.log) else Newest([], whole=True)
    book = read_book(records)
    unsettled = chosen(book.open, reason, model)
    letters = oldest_first(unsettled if still_open else chosen(book.letters.values(), reason, model))
    return LetterList(
        letters=[line(book, letter) for letter in letters[: -last - 1 : -1]],
        total=len(letters),
        open=len(unsettled),
        reasons=dict(Counter(letter.reason for letter in letters).most_common()),
        models=sorted({letter.model for letter in book.letters.values() if letter.model}),
        whole=whole,
    )


def explain(configuration: Configuration, wanted: str) -> LetterInFull:
    """One letter in full; raises FeedbackError if there is none at that position."""
    book = read_letters(configuration.log)
    letter = book.letters[position_named(book, wanted)]
    specs, store = open_specs(configuration), open_stores(configuration)
    event, why = learnable(letter, specs, passed_letters([letter], store), UsersRoom(specs, store))
    outcome = fate(letter, book, store)
    return LetterInFull(
        **{**msgspec.structs.asdict(line(book, letter)), "event": text(letter.payload, WHOLE)},
        key=text(letter.key or b"", SHOWN),
        headers={name: text(value, SHOWN) for name, value in letter.headers},
        learnable=event is not None and not outcome,
        why=outcome or why,
    )


def send_again(configuration: Configuration, wanted: list[str]) -> Settled:
    """Send again the events of those letters that would be learned now, each at most once."""
    specs, store = open_specs(configuration), open_stores(configuration)
    # The sender is opened before the letters are read: from then on nobody else sends one of them.
    with closing(open_sender(configuration.log, configuration.in_parts)) as sender:
        book = read_letters(configuration.log)
        positions = [position_named(book, text) for text in wanted]
        sent, refusals = resend(
            [book.letters[position] for position in positions if position not in book.resent], specs, store, sender
        )
    resent_before = sum(position in book.resent for position in positions)
    refusals.update({"it was sent again before": resent_before} if resent_before else {})
    return Settled(sent, dict(refusals.most_common(REASONS)))


def dismiss(configuration: Configuration, wanted: list[str]) -> Settled:
    """Settle these letters although their events were not sent again."""
    with closing(open_sender(configuration.log, configuration.in_parts)) as sender:
        book = read_letters(configuration.log)
        positions = [position_named(book, text) for text in wanted]
        letters = [letter for letter in book.open if letter.position in positions]
        settle(letters, sender)
    settled_before = len(positions) - len(letters)
    return Settled(len(letters), {"it was settled before": settled_before} if settled_before else {})


def line(book: Book, letter: Letter) -> LetterLine:
    """A letter as it appears in a list."""
    partition, offset = letter.position
    return LetterLine(
        position=f"{partition}/{offset}",
        at=letter.at,
        reason=letter.reason,
        model=letter.model,
        error=letter.error,
        since_then=since_then(book, letter.position),
        event=text(letter.payload, SHOWN),
    )


def text(data: bytes, limit: int) -> str:
    """The beginning of some bytes as text."""
    shown = data[:limit].decode(errors="replace")
    return shown if len(data) <= limit else f"{shown} ..."


JOBS: Mapping[str, Callable[..., Any]] = {
    "health": health,
    "letters": letters,
    "explain": explain,
    "resend": send_again,
    "dismiss": dismiss,
}
