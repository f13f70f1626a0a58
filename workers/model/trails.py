"""When a model's events came, were taken, and were learned. Nodes compute from this how fresh their answers are."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import msgspec
import structlog

from omdml.snapshot import Snapshot, Trail
from omdml.streams.protocols.log import Record
from omdml.workers.telemetry import traces

# How many earlier publications a snapshot lists, and for how many seconds.
TRAILS, TRAILED_S = 16, 60.0

log = structlog.get_logger(__name__)


class Trails:
    """Times and traces of a model's events, from the batch that brought them to the snapshots that tell of them.

    Attributes
    ----------
    new
        Times of the events that are in no publication yet.
    traced
        The trace context of the first event of those taken last that has one.
    """

    def __init__(self, model: str) -> None:
        self.new: Trail | None = None
        self.traced = ""
        self._model = model
        # The trails of the last publications.
        self._earlier: tuple[Trail, ...] = ()
        self._taken_at = 0.0

    def take(self) -> None:
        """Note that a batch is taken now."""
        self._taken_at, self.traced = time.time(), ""

    def learned(self, version: int, times: Sequence[float]) -> None:
        """Note the times of events that made this version, which is in no publication."""
        trail = Trail(version, len(times), min(times), self._taken_at, time.time())
        self.new = self.new.with_later(trail) if self.new else trail

    def trace(self, records: Sequence[Record]) -> None:
        """Trace learned events that carry a trace context. The publication continues the context of the first one."""
        for record in records:
            if record.headers and (context := traces.context_in(record.headers)):
                place = {"partition": record.partition.number, "offset": record.offset}
                log.debug("traced_event_learned", model=self._model, trace_id=traces.trace_id(context), **place)
                now = time.time()
                context = traces.record_stage("worker.learn", context, self._taken_at, now, model=self._model, **place)
                self.traced = self.traced or context
                if self.new and not self.new.trace:
                    self.new = msgspec.structs.replace(self.new, trace=context)

    def for_snapshot(self) -> tuple[Trail, ...]:
        """The trails that a snapshot carries, by which nodes compute how fresh their answers are."""
        return (*self._earlier, self.new) if self.new else self._earlier

    def gone_live(self, snapshot: Snapshot, begun_at: float) -> None:
        """Note that a snapshot was published. For a while later snapshots repeat its trail, for nodes that skip it."""
        if self.new and self.new.trace:
            version, now = snapshot.version, time.time()
            traces.record_stage("snapshot.publish", self.new.trace, begun_at, now, model=self._model, version=version)
        trails = deque(trail for trail in snapshot.trails if time.time() - trail.learned < TRAILED_S)
        if len(trails) > TRAILS:
            trails.appendleft(trails.popleft().with_later(trails.popleft()))
        self._earlier, self.new = tuple(trails), None
