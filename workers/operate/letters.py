"""Dead letters, explained: which of them can be sent again, now that what was wrong is mended."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import NamedTuple

from omdml.errors import FeedbackError
from omdml.feedback import AnyFeedback, decode
from omdml.streams.letters import Letter, Position
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import ModelPosition, Store
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import content_type
from omdml.workers.events.validation import check

# The position of a model without a checkpoint.
NOWHERE = ModelPosition(Partition("", 0), 0)


class Verdict(NamedTuple):
    """Whether an event would be learned by now: it, or why not."""

    event: AnyFeedback | None
    why: str = ""


def passed(letters: Collection[Letter], store: Store) -> set[Position]:
    """Those whose events no worker can come by again: below the mark, or passed by the checkpoint of their model."""
    marks = store.marks({letter.partition for letter in letters})
    reached = store.positions(sorted({letter.model for letter in letters if letter.model}))
    return {
        letter.position
        for letter in letters
        for at in [reached.get(letter.model or "", NOWHERE)]
        if letter.offset < marks.get(letter.partition, 0) or (at.home == letter.partition and letter.offset < at.next)
    }


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
