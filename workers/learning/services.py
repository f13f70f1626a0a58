"""What the parts of a worker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from streams.letters import DeadLetters
from streams.protocols import Source, Store
from workers.configuration.specs import Specs
from workers.events.refusal_log import RefusalLog
from workers.learning.metrics import WorkerMetrics
from workers.learning.newcomers import Newcomers
from workers.model.memory_budget import Allowance, Residents


@dataclass(frozen=True)
class Services:
    """What a partition works with."""

    store: Store
    source: Source
    letters: DeadLetters
    specs: Specs
    metrics: WorkerMetrics
    platform: str
    clock: Callable[[], float]
    accept_gap: bool = False
    residents: Residents = field(default_factory=Residents)
    newcomers: Newcomers = field(default_factory=Newcomers)
    refusals: RefusalLog = field(default_factory=RefusalLog)
    allowance: Allowance = field(default_factory=Allowance)  # bytes that checkpoints may take for now
