"""Builds a worker with its log, store, catalogues and letters."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from omdml.workers.configuration.config import Configuration, KafkaLog
from omdml.workers.configuration.process import platform
from omdml.workers.wiring.dead_letters import open_letters
from omdml.workers.wiring.feedback_log import open_source
from omdml.workers.wiring.models import open_specs
from omdml.workers.wiring.stores import open_stores

# What learns brings numba and scipy, a second of processor, which most commands do not need.
if TYPE_CHECKING:
    from omdml.workers.learning.worker import LearnerWorker

MEGABYTE = 1_000_000


def build_worker(configuration: Configuration, registry: CollectorRegistry, accept_gap: bool = False) -> LearnerWorker:
    """A worker over the log, store and catalogues of a configuration."""
    from omdml.workers.configuration.warm_up import warm_up
    from omdml.workers.learning.metrics import WorkerMetrics
    from omdml.workers.learning.services import Services
    from omdml.workers.learning.worker import LearnerWorker
    from omdml.workers.model.allowance import Allowance
    from omdml.workers.model.memory_budget import MemoryBudget
    from omdml.workers.model.new_model_limits import Newcomers
    from omdml.workers.telemetry.registry import ModelLabels
    from omdml.workers.telemetry.store_times import timed

    limits, log = configuration.worker, configuration.log
    # First, so that the alert OmdmlLearningStalled sees a worker that hangs at anything below.
    metrics = WorkerMetrics(
        registry,
        ModelLabels(configuration.models, configuration.metrics.models),
        topic=log.topic if isinstance(log, KafkaLog) else log.path,
        lag_unit="offsets" if isinstance(log, KafkaLog) else "bytes",
    )
    models = open_specs(configuration)
    # A missing catalogue is reported before, because kernels that no cache has take half a minute.
    warm_up((model.learner, str(model.parameters.get("dtype", "float32"))) for model in configuration.models.values())
    services = Services(
        store=timed(open_stores(configuration), registry),
        source=open_source(configuration.log),
        letters=open_letters(configuration.log),
        specs=models,
        metrics=metrics,
        platform=platform(),
        clock=time.monotonic,
        group=log.group,
        accept_gap=accept_gap,
        memory=MemoryBudget(limits.memory_mb * MEGABYTE),
        newcomers=Newcomers(limits.new_models_s),
        allowance=Allowance(limits.save_mb_s * MEGABYTE, limits.checkpoint_interval_s),
    )
    hand_over_s = log.session_timeout_s / 3 if isinstance(log, KafkaLog) else math.inf
    return LearnerWorker(services, limits, hand_over_s)
