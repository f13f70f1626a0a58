"""Step 2 of the protocol: whether a claimed model may continue on this partition, and from which offset."""

from __future__ import annotations

import structlog

from omdml.errors import GapError
from omdml.streams.part_names import whole_of
from omdml.streams.placement import Placement, PlacementChanged
from omdml.streams.protocols.log import Partition
from omdml.workers.learning.partition.waiting_models import Misplaced
from omdml.workers.learning.services import Services
from omdml.workers.model.claim import Claimed, out_of_reach
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.model.written import check_written

log = structlog.get_logger(__name__)


class ClaimChecks:
    """Checks the checkpoints of one partition against its log and the placement."""

    def __init__(self, partition: Partition, services: Services) -> None:
        self._partition = partition
        self._services = services
        # The offset after the log's last record, as far as is known.
        self._end = 0

    def forget_end(self) -> None:
        """Forget the known end of the log, which was cut."""
        self._end = 0

    def let_continue(self, claimed: Claimed, placement: Placement, taken: int, cut: int | None = None) -> None:
        """Let a claimed model continue where it was, or move it here from its old home.

        Parameters
        ----------
        taken
            The offset after the last record that was taken here: the log reaches that far.
        cut
            The log was cut there while the model waited: what lies at or after it is new.

        Raises
        ------
        GapError
            Its checkpoint is about another log, or says more than this one holds, and that is not accepted.
        CorruptError
            Its checkpoint is too old to go on from, or about a partition on which it never lived.
        PlacementChanged
            The models were placed elsewhere meanwhile.
        """
        model, self._end = claimed.model, max(self._end, taken)
        if model.home and model.home.topic_id != self._partition.topic_id:
            hint = "keep --accept-gap until omdml doctor names no model that learned from another log"
            self._accept(model.name, learned_elsewhere(model.name, model.home, self._partition), hint)
            model.home, model.next = None, 0
        if model.home is None:
            model.home = self._partition
        elif model.home != self._partition:
            self._move_in(model, model.home, placement, claimed.fell_back)
        elif claimed.fell_back and model.next < (begin := self._services.source.begin(self._partition)):
            raise out_of_reach(model.name, model.next, begin)
        elif cut is not None and model.next > cut:
            self._go_back(model, cut, placement)
        elif not self.log_reaches(model.next):
            self._go_back_to_end(model, placement)

    def log_reaches(self, position: int) -> bool:
        """Whether the log holds everything below a position; it is asked only if that is not known already."""
        if position > self._end:
            self._end = self._services.source.end(self._partition)
        return position <= self._end

    def _move_in(self, model: OwnedModel, before: Partition, placement: Placement, fell_back: bool) -> None:
        """Have a model go on here that was last saved on another partition, before partitions were added.

        Everything on its old home was learned before ``omdml topics rehome`` placed it here, so it goes on at the first
        offset here that the present placement covers. An older checkpoint does not have all of it. One that goes beyond
        the rehome holds events that are dead letters now.
        """
        if self._services.store.placement(self._partition.topic_id) != placement:
            raise PlacementChanged(self._partition.topic_id)
        left_at = placement.left(model.name, before.number)
        if fell_back or left_at is None:
            raise impossible_origin(model.name, before, self._partition, fell_back)
        if model.next > left_at:
            raise stayed_too_long(model.name, before, self._partition, model.next, left_at)
        model.home, model.next = self._partition, placement.since(self._partition.number)

    def _go_back_to_end(self, model: OwnedModel, placement: Placement) -> None:
        """Move a model back to the log's end if it has learned more of this partition than the log holds.

        It goes on with what comes from now on. Raises GapError unless the operator accepts that. A crash before it is
        saved: the same is found again.
        """
        error = ahead_of_log(model.name, self._partition, model.next, self._end)
        self._accept(model.name, error, hint="start without --accept-gap from now on")
        self._go_back(model, self._end, placement)

    def _accept(self, model: str, gap: GapError, hint: str) -> None:
        """Count and log a gap if the operator accepts it, and raise it otherwise."""
        if not self._services.accept_gap:
            raise gap
        self._services.metrics.loop.gaps.inc()
        log.warning("gap_accepted", model=model, reason=str(gap), hint=hint)

    def _go_back(self, model: OwnedModel, offset: int, placement: Placement) -> None:
        """Move a model's position back to an offset, in the store too."""
        model.next = offset
        checkpoint = model.checkpoint(self._services.platform)
        written = self._services.store.save(checkpoint, model.epoch, back=True, placement=placement)
        fenced = f"model {model.name!r}: another worker owns it now; nothing was written"
        check_written(written, self._partition.topic_id, fenced)


def learned_elsewhere(model: str, home: Partition, here: Partition) -> GapError:
    """The error for a model that was learned from an earlier log."""
    return GapError(
        f"model {model!r} was learned from log {home.topic_id}, but this log is {here.topic_id}: it was made again. "
        "Bring the old log back, begin with an empty store, or go on with this log as it is: omdml worker --accept-gap"
    )


def ahead_of_log(model: str, here: Partition, position: int, end: int) -> GapError:
    """The error for a model whose checkpoint has learned more than the log holds."""
    return GapError(
        f"model {model!r} has learned partition {here.number} up to offset {position}, but the log ends at {end}: the "
        "log was cut, or restored from an older copy. Bring the newer log back, begin the model again "
        f"(omdml models reset {whole_of(model)}), or go on with new events only (omdml worker --accept-gap)",
        position=position,
    )


def stayed_too_long(model: str, before: Partition, here: Partition, position: int, left: int) -> Misplaced:
    """The error for a model that was saved on its old home after it was placed on another one."""
    return Misplaced(
        f"model {model!r} moved from partition {before.number} (at offset {left}) to partition {here.number}, but its "
        f"checkpoint holds what partition {before.number} has up to offset {position}: a worker that was paused saved "
        f"it after the move. Events from {left} on may be dead letters too. Learn the model again: omdml replay "
        f"--model {model} --publish --replace"
    )


def impossible_origin(model: str, before: Partition, here: Partition, fell_back: bool) -> Misplaced:
    """The error for a model whose checkpoint lies on a partition that it cannot have come from."""
    why = (
        "the newer ones are damaged, so what it learned there last is lost"
        if fell_back
        else "it never lived there. If omdml topics rewind was interrupted, run it again"
    )
    return Misplaced(
        f"model {model!r} lives on partition {here.number}, but its checkpoint is about partition {before.number} and "
        f"{why}. If the log still holds what the model learned, learn it again: "
        f"omdml replay --model {model} --publish --replace. Otherwise restore the store from a backup"
    )
