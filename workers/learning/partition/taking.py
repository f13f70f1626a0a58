"""Step 3 of the protocol: gives each model its events of a turn, and the refused ones to the dead letters."""

from __future__ import annotations

from omdml.workers.events.decoding import Batch, Refusal, span_of
from omdml.workers.learning.partition.claiming import Claiming
from omdml.workers.learning.partition.models import OwnedModels
from omdml.workers.learning.partition.pending_letters import PendingLetters
from omdml.workers.learning.partition.records_by_model import Turn
from omdml.workers.learning.services import Services
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.model.relocation import close_stretch


class Taking:
    """Has the models of one partition take events. workers/learning/partition/owned_partition.py lists the steps."""

    def __init__(self, services: Services, models: OwnedModels, claiming: Claiming, letters: PendingLetters) -> None:
        self._services = services
        self._models, self._claiming, self._letters = models, claiming, letters
        # Models of the store whose events were refused here because they are not configured.
        self._unconfigured: set[str] = set()

    def take_turn(self, turn: Turn) -> None:
        """Have each model learn its events of this turn. A model that is not in memory is claimed first."""
        batches, refused = turn.batches, turn.refused
        self._note_only_refused(turn.only_refused, batches, refused)
        spans = {name: span_of(batch, refused.get(name, [])) for name, batch in batches.items()}
        for model in self._claiming.claim_each(spans, turn.positions, turn.records[0].offset):
            self.take_model(model, batches[model.name], refused.pop(model.name, []))
        for name, refusals in refused.items():
            if name in self._models.loaded:
                self.take_model(self._models.loaded[name], Batch(), refusals)
            else:
                self._letters.add(refusals)

    def take_model(self, model: OwnedModel, batch: Batch, refused: list[Refusal]) -> None:
        """Learn the events of a model, and note the refused ones. Its next checkpoint will skip both."""
        refused = [refusal for refusal in refused if refusal.record.offset >= model.next]
        if batch.records and batch.records[0].offset < model.next:
            batch = batch.since(model.next)
        if not batch.records and not refused:
            return
        first, _ = span_of(batch, refused)
        self._models.note_change(model, first)
        if batch.records:
            refused = [*refused, *self._learn(model, batch, refused)]
        else:
            model.refuse(refused)
        model.next = max([model.next, *(refusal.record.offset + 1 for refusal in refused)])
        self._letters.add(refused)

    def _learn(self, model: OwnedModel, batch: Batch, already_refused: list[Refusal]) -> list[Refusal]:
        self._models.use(model)
        label = self._services.specs.of(model.name).label
        with self._services.metrics.learning.timed(label, model):
            refused = model.take(batch, self._services.metrics.loop.timed, already_refused)
        if model.learner.version > model.published and not model.is_part:
            self._models.unpublished.setdefault(model.name, model)
        learned = batch.kinds()
        for outcome, offsets in (("held_out", model.held_out), ("repeated", model.repeated)):
            if offsets:
                kinds = batch.kinds(offsets)
                self._services.metrics.intake.count_events(label, kinds, outcome)
                learned -= kinds
        if refused:
            learned -= batch.kinds({refusal.record.offset for refusal in refused})
        self._services.metrics.intake.count_events(label, learned, "learned")
        self._services.metrics.intake.count_ahead(label, batch.ahead)
        self._services.metrics.learning.count(label, model)
        self._services.metrics.output.count_decisions(label, model)
        return refused

    def _note_only_refused(
        self, names: list[str], batches: dict[str, Batch], refused: dict[str | None, list[Refusal]]
    ) -> None:
        """Have models that the store holds remember that events of theirs were refused.

        They are claimed for that, by an empty batch. A model that is not configured any more cannot be claimed: its
        stretch is closed instead, because nobody will remember what is refused before its next event.
        """
        for name in names:
            if refused[name][0].error.reason != "unknown_model":
                batches[name] = Batch()
            elif name not in self._unconfigured:
                if (answer := close_stretch(self._services.store, name, self._models.placement)) is not None:
                    self._models.require_written(answer, name)
                self._unconfigured.add(name)
