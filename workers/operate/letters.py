"""Dead letters, explained: which of them can be sent again, now that what was wrong is fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from omdml.errors import FeedbackError
from omdml.feedback import AnyFeedback, decode
from omdml.streams.letters import Book, Letter, Position, Sender
from omdml.streams.part_names import part_name
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import ModelPosition, Store
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import content_type
from omdml.workers.events.validation import check

# So many letters, or a letter more than so many bytes of events, are sent again together.
PORTION, PORTION_BYTES = 500, 4_000_000
# The position of a model without a checkpoint.
NOWHERE = ModelPosition(Partition("", 0), 0)


class Verdict(NamedTuple):
    """Whether an event would be learned now: it, or why not."""

    event: AnyFeedback | None
    why: str = ""


def passed(letters: Collection[Letter], store: Store) -> set[Position]:
    """Those whose events no worker can come by again: below the mark, or passed by the checkpoint of their model."""
    marks = store.marks({letter.partition for letter in letters})
    reached = store.positions(sorted({name for letter in letters for name in kept_as(letter)}))
    return {
        letter.position
        for letter in letters
        if letter.offset < marks.get(letter.partition, 0)
        or any(
            position.home == letter.partition and letter.offset < position.next
            for position in [reached.get(name, NOWHERE) for name in kept_as(letter)]
        )
    }


def kept_as(letter: Letter) -> list[str]:
    """What a store may call the model of a letter: by its name, or if it is in parts, by the part of its partition."""
    return [letter.model, part_name(letter.model, letter.partition.number)] if letter.model else []


def learnable(letter: Letter, specs: Specs, passed: Container[Position]) -> Verdict:
    """Look at a letter with today's models and items; one that is not passed a worker may take again, and learn."""
    # First: one that a router cut has its position in another topic, which no worker ever passes.
    if letter.digest is not None:
        return Verdict(None, "only its beginning was kept: it was too large, send the event itself again")
    if letter.position not in passed:
        return Verdict(None, "its worker has not saved how far it has come: try again (omdml topics status)")
    try:
        event = decode(letter.payload, content_type(letter.headers))
        check(event, specs.find(event.model))
    except FeedbackError as error:
        return Verdict(None, str(error))
    return Verdict(event)


def chosen(
    letters: Iterable[Letter], reason: str | None, model: str | None, positions: Iterable[Position] = ()
) -> list[Letter]:
    """Those of these letters that are asked for, by reason, by model, or by position."""
    wanted = set(positions)
    return [
        letter
        for letter in letters
        if reason in (None, letter.reason)
        and model in (None, letter.model)
        and (not wanted or letter.position in wanted)
    ]


class Resending(NamedTuple):
    """What became of letters whose events were to be sent again: how many were, and why the others were not."""

    sent: int
    left: Counter[str]


def resend(letters: Iterable[Letter], specs: Specs, store: Store, sender: Sender | None) -> Resending:
    """Send the events of these letters again that would be learned now; without a ``sender`` only count them.

    The sender must be open before the letters are read: from then on nobody else settles one of them.
    """
    letters = list(letters)
    standing = passed(letters, store)
    learned, remaining = list[tuple[Letter, str]](), Counter[str]()
    for letter in letters:
        event, why = learnable(letter, specs, standing)
        if event is None:
            remaining[why] += 1
        else:
            learned.append((letter, event.model))
    if sender and learned:
        secret = store.secret()
        for portion in portions(learned):
            sender.send(portion, secret)
    return Resending(len(learned), remaining)


def portions(letters: Iterable[tuple[Letter, str]]) -> Iterator[list[tuple[Letter, str]]]:
    """Letters in order, as many at a time as are sent together."""
    portion, size = list[tuple[Letter, str]](), 0
    for letter, model in letters:
        portion.append((letter, model))
        size += len(letter.payload)
        if len(portion) == PORTION or size > PORTION_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def settle(letters: Sequence[Letter], sender: Sender) -> None:
    """Mark these letters as settled, a portion at a time."""
    for first in range(0, len(letters), PORTION):
        sender.dismiss(letters[first : first + PORTION])


def position(book: Book, text: str) -> Position:
    """Where the letter lies that ``[TOPIC-ID/]PARTITION/OFFSET`` names; raises FeedbackError if that is not one."""
    positions = [place for place in book.letters if text in (f"{place[0]}/{place[1]}", f"{place[0].number}/{place[1]}")]
    if len(positions) == 1:
        return positions[0]
    if not positions:
        raise FeedbackError(f"there is no dead letter at {text}: see omdml letters list")
    which = ", ".join(f"{partition}/{offset}" for partition, offset in positions)
    raise FeedbackError(f"{text} is a position in several logs of this name, say which: {which}")


def since_then(book: Book, position: Position) -> str:
    """What became of a letter; empty while it is open."""
    return "sent again" if position in book.resent else "dismissed" if position in book.dismissed else ""


def oldest_first(letters: Iterable[Letter]) -> list[Letter]:
    """The letters as their events were logged; a log in files notes no times, there offsets tell."""
    letters = list(letters)
    logs = list(dict.fromkeys(letter.partition.topic_id for letter in letters))
    return sorted(letters, key=lambda entry: (logs.index(entry.partition.topic_id), entry.at or 0.0, entry.position))
