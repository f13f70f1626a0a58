"""The models of one partition in memory, and how what they learn reaches the nodes and the store.

Steps 4 and 5 of the protocol, which workers/learning/partition/owned_partition.py lists.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from omdml.errors import CorruptError, Fenced, StoreLost
from omdml.streams.placement import Assumed, Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Written
from omdml.workers.learning.metrics import WITHHELD, share_of
from omdml.workers.learning.partition.pending_letters import PendingLetters
from omdml.workers.learning.partition.portions import portions
from omdml.workers.learning.partition.watermark import Mark
from omdml.workers.learning.services import Services
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.model.written import check_written
from omdml.workers.versions.targets import TAKEN_BACK, why_taken_back

log = structlog.get_logger(__name__)


class OwnedModels:
    """The models that a partition's owner has in memory.

    Parameters
    ----------
    placement
        Where models live, as this partition's owner knows it.

    Attributes
    ----------
    loaded
        Models in memory, by name.
    unsaved
        Those that learned what no checkpoint has, the oldest change first.
    unpublished
        Those that learned what no node knows yet, the oldest change first.
    """

    def __init__(
        self, partition: Partition, placement: Placement, services: Services, mark: Mark, letters: PendingLetters
    ) -> None:
        self.placement = placement
        self.loaded: dict[str, OwnedModel] = {}
        self.unsaved: dict[str, OwnedModel] = {}
        self.unpublished: dict[str, OwnedModel] = {}
        self._partition = partition
        self._services = services
        self._mark = mark
        self._letters = letters

    def add(self, model: OwnedModel) -> None:
        """Have a model in memory from now on. The least recently used one may be dropped for it."""
        self.loaded[model.name] = model
        self.use(model)

    def use(self, model: OwnedModel) -> None:
        """Note that a model is used now."""
        self._services.memory.use(model.name, model.size, self.keep_and_drop)

    def keep_and_drop(self, name: str) -> None:
        """Publish and save one model, then drop it from memory. Raises Fenced."""
        self.keep([self.loaded[name]])
        self.drop(name)

    def drop(self, name: str) -> None:
        """Drop a model from memory. What it learned since its last save is read again."""
        for models in (self.loaded, self.unsaved, self.unpublished):
            models.pop(name, None)
        self._services.memory.forget(name)

    def note_change(self, model: OwnedModel, offset: int) -> None:
        """Note that a model must be saved, because its events from ``offset`` on are in no checkpoint."""
        if model.name not in self.unsaved:
            model.changed_at, model.unsaved_from = self._services.clock(), offset
            self.unsaved[model.name] = model

    def publish(self, until: float = math.inf) -> None:
        """Bring what was learned to the nodes, the oldest first: at least one portion, and none after ``until``."""
        for models in portions(list(self.unpublished.values())):
            self._note_drift(models)
            self._publish(models)
            if self._services.clock() >= until:
                break

    def keep(self, models: list[OwnedModel]) -> None:
        """Publish changed models, or record that they are withheld. Then save those with unsaved changes."""
        self._note_drift(models)
        if unpublished := [model for model in models if model.name in self.unpublished]:
            self._publish(unpublished, record=True)
        if unsaved := [model for model in models if model.name in self.unsaved]:
            self.write(unsaved)

    def _note_drift(self, models: list[OwnedModel]) -> None:
        """Write alarms about drift into the history of their models."""
        for model in models:
            if model.drifted:
                with self.unless_deleted(model):
                    noted = self._services.store.note(model.name, model.epoch, "drift", model.drifted)
                    self.require_written(noted, model.name)
                    self._services.metrics.learning.count_drift(self._services.specs.of(model.name).label)
                    model.drifted = ""

    def _publish(self, models: list[OwnedModel], record: bool = False) -> None:
        """Publish the newest version of each model that has one, unless the guard withholds it.

        With ``record``, before a checkpoint, a withheld snapshot is stored too: no replay would make it again.
        """
        metrics, new = self._services.metrics, []
        self._take_back(models)
        with metrics.loop.timed("publish"):
            for model in models:
                if model.name in self.unpublished and (record or model.judge.has_time(model.learner.version)):
                    metric = model.metric
                    with metrics.loop.timed("judge"):
                        withheld = model.judge.verdict(metric, model.learner.version)
                    if record or not withheld:
                        # The snapshot tells what the guard compared, so it is made after that.
                        new.append((model, model.snapshot(), withheld))
            if not new:
                return
            begun_at = time.time()
            with share_of(metrics.output.publish_seconds, len(new)):
                answers = self._services.store.publish_all(
                    [(snapshot, model.epoch, withheld) for model, snapshot, withheld in new], self.assumed
                )
        for (model, snapshot, withheld), answer in zip(new, answers, strict=True):
            with self.unless_deleted(model):
                written = self.require_written(answer, model.name)
                model.published = model.learner.version
                self.unpublished.pop(model.name, None)
                if not withheld:
                    model.trails.gone_live(snapshot, begun_at)
                label = self._services.specs.of(model.name).label
                metrics.output.count_published(label, model, WITHHELD if withheld else written.value)
                metrics.learning.describe(label, model)

    def _take_back(self, models: list[OwnedModel]) -> None:
        """Make the reference live again if the guard has judged the versions since then worse."""
        for model in models:
            if model.judge.guard.take_back:
                with self.unless_deleted(model):
                    yardstick, store = model.judge.guard.yardstick, self._services.store
                    reason = why_taken_back(yardstick.version, yardstick.withheld)
                    written = store.publish(model.reference_again(), model.epoch, assumed=self.assumed)
                    self.require_written(written, model.name)
                    self.require_written(store.note(model.name, model.epoch, TAKEN_BACK, reason), model.name)
                    model.judge.guard.take_back = False
                    live = store.current(model.name)
                    if live and live.pinned:
                        # Nothing changed for nodes. The reference goes live once it is unpinned.
                        continue
                    self._services.metrics.output.count_taken_back()
                    log.warning("snapshot_taken_back", model=model.name, version=model.learner.version, reason=reason)

    @property
    def assumed(self) -> Assumed:
        """The placement that a publication assumes.

        If models were placed elsewhere since this partition was taken over, the store refuses the publication: the
        events become dead letters of the next owner, so nodes must not see what was learned from them.
        """
        return Assumed(self._partition.topic_id, self.placement)

    def write(self, models: list[OwnedModel]) -> None:
        """Save models, the letters before them."""
        metrics = self._services.metrics
        # If these letters were lost, nothing would make them again, because the checkpoint skips their events.
        self._letters.flush()
        with metrics.loop.timed("save"):
            checkpoints = [model.checkpoint(self._services.platform) for model in models]
            epochs = [model.epoch for model in models]
            with share_of(metrics.output.checkpoint_seconds, len(models)):
                answers = self._services.store.save_all(list(zip(checkpoints, epochs, strict=True)), self.placement)
        for model, checkpoint, answer in zip(models, checkpoints, answers, strict=True):
            with self.unless_deleted(model):
                self.require_written(answer, model.name)
                self._services.allowance.spend(len(checkpoint.state))
                metrics.output.checkpoint_bytes.inc(len(checkpoint.state))
                model.shrink()
                self.unsaved.pop(model.name, None)

    @contextmanager
    def unless_deleted(self, model: OwnedModel) -> Iterator[None]:
        """Drop a model if the store says that it was deleted.

        Raises Rewind if it took events since it was last saved: they begin it again. Raises StoreChanged if the store
        lost more than this model, and StoreLost if there is no mark to tell by. If a write was refused, raises
        StoreChanged or ModelReplaced if one of them is why, and Fenced otherwise.
        """
        try:
            yield
        except StoreLost:
            # A store that came back from an older copy lacks younger models; what is missing is learned again.
            if not self._mark.lost_only_a_model():
                raise
            begin = model.unsaved_from if model.name in self.unsaved else None
            self.drop(model.name)
            if begin is None:
                log.warning("model_deleted", model=model.name, action="its next event begins it again")
                return
            raise self._mark.rewind(model.name, begin, "model_deleted") from None
        except Fenced:
            # A store that came back from an older copy may have forgotten this owner's claim. Somebody who replaced the
            # model has claimed it, too. Looking at the mark tells both from a second owner.
            self._mark.look()
            raise

    def require_written(self, answer: Written | CorruptError | StoreLost, name: str) -> Written:
        """What a write did, by the store's answer. Raises Fenced, PlacementChanged, or the error that is the answer."""
        if isinstance(answer, CorruptError | StoreLost):
            raise answer
        fenced = f"model {name!r}: another worker owns it now, or a command moved it; nothing was written"
        return check_written(answer, self._partition.topic_id, fenced)
