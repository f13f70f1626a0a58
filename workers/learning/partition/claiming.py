"""Step 2 of the protocol: claims the models that have not taken the events at hand, and are not in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import structlog

from omdml.errors import CorruptError, SourceError, StoreError, StoreLost
from omdml.streams.part_names import part_of
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import ModelPosition
from omdml.streams.stores.checkpoints import none_valid
from omdml.workers.learning.partition.claim_checks import ClaimChecks
from omdml.workers.learning.partition.models import OwnedModels
from omdml.workers.learning.partition.waiting_models import WaitingModels
from omdml.workers.learning.partition.watermark import Mark
from omdml.workers.learning.services import Services
from omdml.workers.model.claim import ChangedSetting, Claimed, claim, claim_all
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.model.parts.merged_model import begin
from omdml.workers.model.written import check_written

# At most this many models are claimed together.
CLAIMED_TOGETHER = 100
# Models that are claimed together take one part in this many of the memory that models may take.
MEMORY_SHARE = 16

log = structlog.get_logger(__name__)


class Claiming:
    """Claims the models of one partition. Events that a claimed model lacks are read again; a damaged model waits."""

    def __init__(
        self, partition: Partition, services: Services, models: OwnedModels, mark: Mark, waiting: WaitingModels
    ) -> None:
        self.checks = ClaimChecks(partition, services)
        self._partition, self._services = partition, services
        self._models, self._mark = models, mark
        self._waiting = waiting

    def claim_each(
        self, spans: Mapping[str, tuple[int, int]], positions: Mapping[str, ModelPosition], offset: int
    ) -> Iterator[OwnedModel]:
        """Claim the models that must take the events at hand, and yield each as soon as it is claimed.

        A model may be dropped from memory to make room for the next one, so use it before you ask for that.

        Parameters
        ----------
        spans
            For each model the offsets of the first and the last of its events.
        positions
            Where the store has these models; one without a checkpoint is absent.
        offset
            The first offset of all records at hand.

        Raises
        ------
        StoreLost
            The store has lost a model's owner.
        Rewind
            A model waited until now, or only an older checkpoint was sound. The events that it lacks are taken again.
        """
        claimed: dict[str, Claimed | CorruptError | StoreLost] = {}
        needed = [name for name, (_, last) in spans.items() if self._must_claim(name, last, positions.get(name))]
        for name, span in spans.items():
            if name not in self._models.loaded and not self._waiting.waits(name):
                try:
                    if name not in claimed and name in needed:
                        # Those that come after it are claimed with it, as many as memory holds.
                        claimed |= self._claim_together(needed, name)
                    self._claim_for_events(name, span, positions.get(name), offset, claimed.get(name))
                except CorruptError as error:
                    self._waiting.add(name, span[0], error)
            if name in self._models.loaded:
                yield self._models.loaded[name]

    def _must_claim(self, name: str, last: int, position: ModelPosition | None) -> bool:
        """Whether a model that the store has at this position must be claimed for events up to the offset ``last``."""
        return name not in self._models.loaded and not self._waiting.waits(name) and not self._has_taken(last, position)

    def _has_taken(self, last: int, position: ModelPosition | None) -> bool:
        """Whether a model's checkpoint, which is at this position, has everything up to the offset ``last``."""
        if position is None or position.home != self._partition or last >= position.next:
            return False
        return self.checks.log_reaches(position.next)

    def _claim_together(self, needed: list[str], name: str) -> dict[str, Claimed | CorruptError | StoreLost]:
        """Claim this model and those needed after it, as many as memory can take beside the others.

        What a new part of a model begins with is written down before it is claimed. If its whole cannot be read, that
        error is the answer about the part alone.
        """
        specs, store, first = self._services.specs, self._services.store, needed.index(name)
        room = self._services.memory.limit / MEMORY_SHARE / specs.of(name).start_bytes
        names = needed[first : first + int(max(1, min(CLAIMED_TOGETHER, room)))]
        claimed: dict[str, Claimed | CorruptError | StoreLost] = {}
        for part in [name for name in names if part_of(name)]:
            try:
                begin_part(part, self._partition, self._models.placement, self._services)
            except CorruptError as error:
                claimed[part] = error
        names = [name for name in names if name not in claimed]
        claimed |= claim_all(names, {model: specs.of(model) for model in names}, store, self._services.platform)
        if names:
            log.info("models_claimed", count=len(names), first=names[0])
        self._check_store()
        return claimed

    def _claim_for_events(
        self,
        name: str,
        span: tuple[int, int],
        position: ModelPosition | None,
        offset: int,
        claimed: Claimed | CorruptError | StoreLost | None = None,
    ) -> None:
        """Claim a model for its events at hand, unless its checkpoint has all of them.

        ``claimed`` is the model, or the error, if it was claimed together with others. Raises as :meth:`claim_each`,
        and CorruptError if its checkpoints cannot be read: then it waits.
        """
        first, last = span
        if claimed is None and self._has_taken(last, position):
            return
        self._services.memory.make_room()
        if isinstance(claimed, CorruptError | StoreLost):
            raise claimed
        if claimed is None:
            # It was in memory when this turn's models were claimed together, and was dropped since to make room.
            claimed = self.claim(name)
            self._check_store()
        else:
            self._let_continue(claimed)
        model, fell_back, changes, from_parent = claimed
        waits_from = self._waiting.offsets.get(name, offset)
        rewind = None
        if fell_back or waits_from < offset:
            why = "checkpoint_damaged_previous_used" if fell_back else "model_goes_on"
            rewind = self._mark.rewind(name, min(offset, waits_from, model.next) if position else waits_from, why)
        self._models.add(model)
        try:
            if changes:
                self._adopt_changes(model, changes, offset)
            if from_parent:
                # It may have waited since earlier events. They are taken again after this.
                self._begin(model, min(first, waits_from) if rewind else first)
        except (StoreError, SourceError) as error:
            self._models.drop(name)
            if rewind:
                # Its checkpoint may have been saved nevertheless, and no longer shows which events it lacks.
                self._waiting.add(name, rewind.offset, error)
            raise
        self._waiting.remove(name)
        if rewind:
            raise rewind

    def claim(self, name: str) -> Claimed:
        """Become the owner of a model that lives here; see :meth:`ClaimChecks.let_continue`."""
        return self._let_continue(
            claim(name, self._services.specs.of(name), self._services.store, self._services.platform)
        )

    def _let_continue(self, claimed: Claimed) -> Claimed:
        cut = self._waiting.cuts.get(claimed.model.name)
        self.checks.let_continue(claimed, self._models.placement, self._mark.taken or 0, cut)
        return claimed

    def _check_store(self) -> None:
        """Raise StoreChanged if the store may have just been restored from an older copy: a model that was claimed from
        it lacks earlier events, which must be learned before the batch at hand."""
        self._mark.look()

    def _adopt_changes(self, model: OwnedModel, changes: list[ChangedSetting], offset: int) -> None:
        """Continue with changed settings: note the change in the history, and save a checkpoint with the new settings.

        A model that is deleted in the meantime begins again with the events at hand; the first one is at ``offset``.
        """
        self._models.note_change(model, offset)
        with self._models.unless_deleted(model):
            for what, detail in changes:
                log.warning("change_adopted", model=model.name, offset=model.next, kind=what, what=detail)
                reason = f"{detail}, from offset {model.next} of {self._partition} on"
                self._models.require_written(
                    self._services.store.note(model.name, model.epoch, what, reason), model.name
                )
        self._models.write([model])

    def _begin(self, model: OwnedModel, first: int) -> None:
        """Save a model that begins with what its parent served, before it learns its event at the offset ``first``.

        After a crash before this, the model begins once more, perhaps with a newer version of its parent; nothing of
        the first attempt was visible. After a crash behind it, the model resumes from this checkpoint, so the same
        events make the same bytes.
        """
        model.begin_at(first)
        self._models.note_change(model, first)
        self._models.write([model])

    def try_waiting(self) -> None:
        """Raise Rewind if the checkpoint of the model that has waited longest can be read now."""
        if (name := self._waiting.due()) is None:
            return
        store, source = self._services.store, self._services.source
        offset = self._waiting.forget_before(name, source.begin(self._partition))
        try:
            positions = store.positions([name])
            if positions and store.peek(name) is None:
                # Look before claiming: each claim would raise the epoch.
                raise none_valid(name, str(store))
            model = self.claim(name).model
        except CorruptError as error:
            self._waiting.add(name, offset, error)
            return
        rewind = self._mark.rewind(name, min(offset, model.next) if positions else offset, "model_goes_on")
        self._waiting.remove(name)
        raise rewind


def begin_part(name: str, partition: Partition, placement: Placement, services: Services) -> None:
    """Write down what the parts of a model begin with, if this one is new. Raises Fenced, PlacementChanged."""
    part, store = part_of(name), services.store
    if part is None or store.positions([name]):
        return
    written = begin(part.model, services.specs.of(name), store, partition, placement, services.platform)
    if written is not None:
        fenced = f"model {part.model!r}: another worker is beginning it; nothing was written"
        check_written(written, partition.topic_id, fenced)
