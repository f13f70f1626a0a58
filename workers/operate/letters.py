"""Dead letters: which of them can be sent again, now that the cause may be fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
import numpy as np

from omdml.errors import CorruptError, FeedbackError
from omdml.feedback import AnyFeedback, decode
from omdml.streams.letters import Book, Letter, Position, Sender
from omdml.streams.part_names import part_name, part_of
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import ModelPosition, Store
from omdml.workers.configuration.model_names import can_be_kept
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import content_type
from omdml.workers.events.learned_stretches import Stretches
from omdml.workers.events.validation import check, learned_ids
from omdml.workers.model.progress import Progress
from omdml.workers.model.user_shares import UserShares

# Letters are sent again in portions of at most 500, which end after 4 MB of events.
PORTION, PORTION_BYTES = 500, 4_000_000
# The position of a model without a checkpoint.
NOWHERE = ModelPosition(Partition("", 0), 0)


class LetterVerdict(NamedTuple):
    """The event if it would be learned now, otherwise None and why not."""

    event: AnyFeedback | None
    why: str = ""


class UsersRoom:
    """What users may still send to models that limit their share, by the models' newest checkpoints."""

    def __init__(self, specs: Specs, store: Store) -> None:
        self._specs, self._store = specs, store
        self._shares: dict[str, UserShares] = {}

    def take(self, event: AnyFeedback) -> None:
        """Take an event, which then counts for those that follow; raises FeedbackError if its user has no room."""
        spec = self._specs.of(event.model)
        # It is not known yet which part of a model in parts would get the event.
        if event.user is None or spec.max_share_a_user >= 1 or spec.parts:
            return
        if event.model not in self._shares:
            self._shares[event.model] = self._stored(event.model, spec.max_share_a_user)
        width = spec.learner.width
        count = len(learned_ids(event, spec)) // width if width else 1
        for error in self._shares[event.model].take([event.user], np.array([count])).values():
            raise error

    def _stored(self, model: str, share: float) -> UserShares:
        with suppress(CorruptError):
            if checkpoint := self._store.peek(model):
                return UserShares(share, Progress.of(checkpoint).users)
        return UserShares(share)


def passed_letters(letters: Collection[Letter], store: Store) -> set[Position]:
    """The letters whose events no worker reads again: they are below the mark, or below their model's position."""
    marks = store.marks({letter.partition for letter in letters})
    reached = store.positions(sorted({name for letter in letters for name in names_in_store(letter)}))
    return {
        letter.position
        for letter in letters
        if letter.offset < marks.get(letter.partition, 0)
        or any(
            position.home == letter.partition and letter.offset < position.next
            for position in [reached.get(name, NOWHERE) for name in names_in_store(letter)]
        )
    }


def names_in_store(letter: Letter) -> list[str]:
    """The names under which a store may keep the model of a letter: its own, and that of its part on this partition.

    An event that names a part itself never reached that part, and no store keeps a model whose name is too long.
    """
    if letter.model is None or part_of(letter.model) or not can_be_kept(letter.model):
        return []
    return [letter.model, part_name(letter.model, letter.partition.number)]


def learnable(letter: Letter, specs: Specs, passed: Container[Position], room: UsersRoom) -> LetterVerdict:
    """Whether the event of a letter would be learned with today's models and items, and takes ``room`` for it.

    A letter that is not ``passed`` is refused, because a worker may still read its event again and learn it.
    """
    # This comes first: the position of a letter that a router cut is in another topic, which workers never pass.
    if letter.digest is not None:
        return LetterVerdict(
            None, "the event was too large and only its beginning was kept: send the event itself again"
        )
    if letter.position not in passed:
        why = "the worker has not saved yet that it passed this event, so it may still learn it: try again later"
        return LetterVerdict(None, why)
    try:
        event = decode(letter.payload, content_type(letter.headers))
        check(event, specs)
        room.take(event)
    except FeedbackError as error:
        return LetterVerdict(None, str(error))
    return LetterVerdict(event)


def fate(letter: Letter, book: Book, store: Store) -> str:
    """What became of the event of a letter since the letter was written; empty if that is open, as far as is known.

    After a crash a worker takes events again, and by then the cause of a refusal may be gone. The model's checkpoint
    tells which events were taken.
    """
    if letter.position in book.resent:
        return "its event was sent again: nothing is left to do. If that copy was refused too, it has its own letter"
    for name in names_in_store(letter if letter.model else with_model(letter)):
        with suppress(CorruptError):
            checkpoint = store.peek(name)
            progress = Progress.of(checkpoint) if checkpoint else Progress()
            if Stretches(progress.stretches).learned(*letter.position):
                return "its event was learned, or held out to judge with, after this letter was written: dismiss it"
    return ""


def with_model(letter: Letter) -> Letter:
    """The letter with the model that its event names, if it can be read."""
    with suppress(FeedbackError):
        return msgspec.structs.replace(letter, model=decode(letter.payload, content_type(letter.headers)).model)
    return letter


def chosen(
    letters: Iterable[Letter], reason: str | None, model: str | None, positions: Iterable[Position] = ()
) -> list[Letter]:
    """The letters with this reason, of this model and at these positions, as far as these are given."""
    wanted = set(positions)
    return [
        letter
        for letter in letters
        if reason in (None, letter.reason)
        and model in (None, letter.model)
        and (not wanted or letter.position in wanted)
    ]


class Resending(NamedTuple):
    """The result of sending letters again: how many were sent, and for each reason how many were left."""

    sent: int
    left: Counter[str]


def resend(letters: Iterable[Letter], specs: Specs, store: Store, sender: Sender | None) -> Resending:
    """Send the events of these letters again that would be learned now; without a ``sender`` only count them.

    Open the sender before you read the letters: from then on nobody else can settle one of them.
    """
    letters = list(letters)
    passed, room = passed_letters(letters, store), UsersRoom(specs, store)
    learned, remaining = list[tuple[Letter, str]](), Counter[str]()
    for letter in letters:
        event, why = learnable(letter, specs, passed, room)
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
    """The letters in order, in portions that are sent together."""
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
    """Mark these letters as dismissed, a portion at a time."""
    for first in range(0, len(letters), PORTION):
        sender.dismiss(letters[first : first + PORTION])


def position_named(book: Book, text: str) -> Position:
    """The position of the letter that ``[TOPIC-ID/]PARTITION/OFFSET`` names; raises FeedbackError if it is not one."""
    positions = [place for place in book.letters if text in (f"{place[0]}/{place[1]}", f"{place[0].number}/{place[1]}")]
    if len(positions) == 1:
        return positions[0]
    if not positions:
        raise FeedbackError(
            f"there is no dead letter at {text}: expected PARTITION/OFFSET, as omdml letters list shows them"
        )
    which = ", ".join(f"{partition}/{offset}" for partition, offset in positions)
    raise FeedbackError(f"{text} is a position in several logs of this name: say which one: {which}")


def since_then(book: Book, position: Position) -> str:
    """What became of a letter; empty while it is open."""
    return "sent again" if position in book.resent else "dismissed" if position in book.dismissed else ""


def oldest_first(letters: Iterable[Letter]) -> list[Letter]:
    """The letters in the order in which their events were logged. Events without a time are in order of offsets."""
    letters = list(letters)
    logs = list(dict.fromkeys(letter.partition.topic_id for letter in letters))
    return sorted(letters, key=lambda entry: (logs.index(entry.partition.topic_id), entry.at or 0.0, entry.position))
