"""A model as it is stored: the checkpoints that it is resumed from, and the snapshots that nodes answer with."""

from __future__ import annotations

import math

import msgspec

from omdml.learners import Learner
from omdml.metrics import Metric
from omdml.snapshot import Checkpoint, Snapshot, metric_from_bytes
from omdml.streams.part_names import part_of, whole_of
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.log import Partition
from omdml.workers.events.learned_stretches import Stretches
from omdml.workers.events.repeats import SeenIds
from omdml.workers.model.judging.drift import Drift
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.judging.held_out_draw import Draw, HoldOutState
from omdml.workers.model.judging.judge import Judge
from omdml.workers.model.progress import Progress
from omdml.workers.model.trails import Trails
from omdml.workers.model.user_shares import UserShares

# Bytes of memory (measured): of a model's Python objects, and of one held-out comparison and its counts.
OBJECT_BYTES, COMPARISON_BYTES = 10_000, 700
# Metrics in memory: the guard's reference, its bytes, and the newest one until it is saved.
METRICS = 3


class StoredModel:
    """A model in memory, with all that its checkpoints and snapshots say.

    ``next`` is the offset after the last event taken; events below it are skipped. ``epoch`` guards every write.
    ``secret`` is the store's, and says which events are held out; None if nothing is going to be learned.
    """

    def __init__(
        self,
        name: str,
        learner: Learner,
        catalogue: Catalogue,
        epoch: str,
        configuration: str,
        guard: Guard,
        secret: bytes | None = None,
        max_share_a_user: float = 1.0,
    ) -> None:
        self.name = name
        # A part is never published or judged by itself, only its whole model is. Its events and letters name the whole.
        self.is_part, self.sent_as = part_of(name) is not None, whole_of(name)
        self.learner = learner
        self.catalogue = catalogue
        self.epoch = epoch
        self.configuration = configuration
        self.home: Partition | None = None
        self.next = 0
        draw = Draw(secret, name)
        hold_out = HoldOutState(guard.config.every, secret=draw.fingerprint)
        self.progress = Progress(hold_out=hold_out, yardstick=guard.yardstick)
        self.judge = Judge(name, learner, catalogue, draw, guard, hold_out)
        self.drift = Drift()
        # A message about drift that is not in the history yet.
        self.drifted = ""
        self.seen = SeenIds()
        self._max_share_a_user = max_share_a_user
        self.users = UserShares(max_share_a_user)
        self._secret = secret
        self.stretches = Stretches(secret=secret)
        self.event_time: float | None = None
        self.trails = Trails(name)
        # Clock time of the oldest change that no checkpoint has, and the offset of its event.
        self.changed_at = 0.0
        self.unsaved_from = 0
        # The version that was published last.
        self.published = -1
        # Bytes in memory.
        self.size = 0
        # The metric that was computed last, with its learner and version.
        self._metric: tuple[tuple[Learner, int], Metric] | None = None
        # The learner's counts up to which the worker's metrics have counted.
        counted = ("version", "mistakes", "updates")
        self.counted = {name: getattr(learner, name) for name in counted if hasattr(learner, name)}

    def resume(self, checkpoint: Checkpoint) -> None:
        """Take over a checkpoint's position and counts; raises CorruptError. The learner was made from its state."""
        self.home = Partition(*checkpoint.home)
        self.next = checkpoint.next
        self.event_time = checkpoint.event_time
        self.progress = Progress.of(checkpoint)
        self.drift, self.seen = Drift(self.progress.drift), SeenIds(self.progress.seen)
        self.users = UserShares(self._max_share_a_user, self.progress.users)
        self.stretches = Stretches(self.progress.stretches, self._secret)
        self.progress.tally = self.progress.tally.resumed(self.home, self.next)
        if checkpoint.generation != self.catalogue.generation:
            # The row numbers of these held-out events belong to another generation of the catalogue.
            self.progress.hold_out.kept = []
        self.judge.judge_by(self.progress.hold_out)
        if checkpoint.reference:
            reference, config = metric_from_bytes(checkpoint.reference), self.judge.guard.config
            self.judge.compare_by(Guard(config, reference, self.progress.yardstick))

    def begin_at(self, offset: int) -> None:
        """Set the position for a save before the first event, whose offset this is."""
        assert self.home is not None
        self.next = offset
        self.progress.tally.take(self.home, offset, learned=0, held=0)

    def checkpoint(self, platform: str) -> Checkpoint:
        """The checkpoint from which another worker can resume this model."""
        assert self.home is not None
        self.progress.drift, self.progress.seen = self.drift.to_bytes(), self.seen.to_bytes()
        self.progress.users, self.progress.yardstick = self.users.to_bytes(), self.judge.guard.yardstick
        self.progress.stretches = self.stretches.saved()
        self.progress.tally.end(self.home, self.next)
        return Checkpoint(
            model=self.name,
            home=(self.home.topic_id, self.home.number),
            next=self.next,
            version=self.learner.version,
            generation=self.catalogue.generation,
            configuration=self.configuration,
            platform=platform,
            event_time=self.event_time,
            progress=msgspec.to_builtins(self.progress),
            state=self.learner.to_bytes(),
            reference=self.judge.guard.reference_bytes,
        )

    def snapshot(self) -> Snapshot:
        """The snapshot of the current version, for nodes to serve."""
        return Snapshot(
            model=self.name,
            learner=self.learner.name,
            version=self.learner.version,
            generation=self.catalogue.generation,
            event_time=self.event_time,
            oldest_event_time=self.trails.new.oldest if self.trails.new else None,
            progress={
                "mistake_rate": self.progress.mistakes.mistake_rate,
                "recent_mistake_rate": self.progress.mistakes.recent_mistake_rate,
                **self.users.figures,
                **self.judge.start_comparison.figures,
                **self.judge.guard.figures,
                **self.learner.figures,
                **self._hedge,
            },
            metric=self.metric,
            trails=self.trails.for_snapshot(),
        )

    @property
    def _hedge(self) -> dict[str, float]:
        """The loss of a learner that weighs with Hedge, and the bound that it must not cross, if there is one."""
        losses = {name: getattr(self.learner, name, math.inf) for name in ("hedge_loss", "hedge_loss_bound")}
        return {name: loss for name, loss in losses.items() if math.isfinite(loss)}

    def reference_again(self) -> Snapshot:
        """The reference as a snapshot, to replace a live version that was judged worse. It has that version's number.

        A lower number would look like the late write of an earlier owner. It names no events, because it brings none
        that nodes do not know.
        """
        changes = {"metric": self.judge.guard.reference, "event_time": None, "oldest_event_time": None, "trails": ()}
        return msgspec.structs.replace(self.snapshot(), **changes)

    @property
    def metric(self) -> Metric:
        """The learned metric. It is one object until more is learned, or until :meth:`shrink` drops it."""
        key = (self.learner, self.learner.version)
        if self._metric is None or self._metric[0] != key:
            self._metric = key, self.learner.metric
        return self._metric[1]

    def _decide(self) -> None:
        """Let the guard decide about this version."""
        if self.judge.guard.config.on and not self.is_part:
            self.judge.decide(self.metric, self.learner.version)

    def shrink(self) -> None:
        """Drop what can be computed again, and set ``size`` to the bytes that are left."""
        self._metric = None
        metrics = METRICS * len(self.judge.guard.reference_bytes)
        events = sum(len(event.rows) for event in self.progress.hold_out.kept)
        self.size = OBJECT_BYTES + self.learner.nbytes + metrics + COMPARISON_BYTES * events + self.seen.nbytes
        self.size += self.stretches.nbytes + self.users.nbytes
