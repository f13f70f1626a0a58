"""What a checkpoint says about a model beside its learner: counts, held-out events, ids and users of newest events."""

from __future__ import annotations

import msgspec

from omdml.errors import CorruptError
from omdml.evaluate import Prequential
from omdml.snapshot import Checkpoint
from omdml.workers.events.learned_stretches import Stretch
from omdml.workers.model.judging.guard import Yardstick
from omdml.workers.model.judging.held_out_draw import HoldOutState
from omdml.workers.model.tally import Tally


class Progress(msgspec.Struct):
    """The part of a model's checkpoint beside the learner's state."""

    mistakes: Prequential = msgspec.field(default_factory=Prequential)
    hold_out: HoldOutState = msgspec.field(default_factory=HoldOutState)
    yardstick: Yardstick = msgspec.field(default_factory=Yardstick)
    drift: bytes = b""
    # Ids of the newest events, 8 bytes each.
    seen: bytes = b""
    # The users of the newest comparisons, if a user's share is limited.
    users: bytes = b""
    tally: Tally = msgspec.field(default_factory=Tally)
    stretches: list[Stretch] = []

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Progress:
        """What a checkpoint says; raises CorruptError if that cannot be read."""
        try:
            return msgspec.convert(checkpoint.progress, cls)
        except msgspec.ValidationError as error:
            raise CorruptError(
                f"checkpoint of model {checkpoint.model!r}: its progress is damaged ({error})"
            ) from error
