"""What the parts of a worker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from omdml.streams.letters import DeadLetters
from omdml.streams.protocols.log import Source
from omdml.streams.protocols.store import Store
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.refusal_log import RefusalLog
from omdml.workers.learning.metrics import WorkerMetrics
from omdml.workers.model.allowance import Allowance
from omdml.workers.model.memory_budget import MemoryBudget
from omdml.workers.model.new_model_limits import Newcomers


@dataclass(frozen=True)
class Services:
    """What every partition of a worker shares: store, specifications, metrics, letters."""

    store: Store
    source: Source
    letters: DeadLetters
    specs: Specs
    metrics: WorkerMetrics
    platform: str
    clock: Callable[[], float]
    # The group that reads the log, recorded in the store; empty if the log knows no groups.
    group: str = ""
    # Go on if the log no longer holds the events at a position. Otherwise that ends the worker.
    accept_gap: bool = False
    memory: MemoryBudget = field(default_factory=MemoryBudget)
    newcomers: Newcomers = field(default_factory=Newcomers)
    refusals: RefusalLog = field(default_factory=RefusalLog)
    # How many bytes checkpoints may take for now.
    allowance: Allowance = field(default_factory=Allowance)
