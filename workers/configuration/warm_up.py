"""Makes kernels ready before the first event or search."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import structlog
from numba.core import event

from omdml.comparisons import Judgement
from omdml.learners import LEARNERS, Learner
from omdml.retrieval.codes import Codes
from omdml.retrieval.distances import squared_distances

# Enough rows for every start.
ROWS = 64
# How often a comparison is learned. Blocks of comparisons close after every 16; those of dca close at its refreshes, of
# which one comes after 40. The last turn leaves an open block, so the kernels that make a metric from one are called.
TURNS = 41


def warm_up(learners: Iterable[tuple[str, str]]) -> None:
    """Compile (the first time) or load the kernels of learners of these names and types, which takes seconds.

    What reads the records of Kafka is compiled when it is loaded.
    """
    import omdml.kernels.kafka_records  # noqa: F401

    for name, dtype in sorted(set(learners)):
        small = next(iter(LEARNERS[name]._unit_test_params()))
        learner = LEARNERS[name](**{**small, "dtype": dtype})
        draw = np.random.default_rng(0)
        features = {modality: draw.normal(size=(ROWS, size)).astype(dtype) for modality, size in learner.dims.items()}
        row, columns = comparison(learner)
        for _ in range(TURNS):
            learner.learn_many([row], features, **columns)
        learner.metric.score({modality: table[:1] for modality, table in features.items()}, features)


def warm_up_searches() -> None:
    """Compile (the first time) or load what scans galleries, which takes seconds."""
    row = np.zeros((1, 1), np.float32)
    among = np.ones(1, np.bool_)
    # As the masks of catalogues and filters are: numba compiles for arrays that can be written to, and for others.
    among.flags.writeable = False
    for mask in (None, np.ones(1, np.bool_), among):
        Codes(row).candidates(row.astype(np.float64), 1, mask)
    for dtype in (np.float32, np.float64):
        squared_distances(row.astype(dtype), np.zeros(1, np.int64), np.zeros(1))


def announce_compiling(tell: Callable[[], None] | None = None) -> None:
    """Say once, as soon as a kernel is compiled because no cache holds it, that this start takes longer.

    This holds from now on, in this process. ``tell`` is called; without it, a line is logged.
    """
    event.register("numba:compile", _FirstCompilation(tell or _log_compiling))


class _FirstCompilation(event.Listener):  # type: ignore[misc] # numba's classes have no types
    """numba tells it when a compilation begins; what comes from the cache is not compiled."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell, self._announced = tell, False

    def on_start(self, event_: Any) -> None:
        # It stays registered: numba walks along its list of listeners, and would pass over the next one.
        if not self._announced:
            self._announced = True
            self._tell()

    def on_end(self, event_: Any) -> None:
        pass


def _log_compiling() -> None:
    log = structlog.get_logger(__name__)
    log.info("compiling_kernels", hint="this is done once and takes one to three minutes; later starts load them")


def comparison(learner: Learner) -> tuple[Any, dict[str, Any]]:
    """Something to learn: a row, and what else it brings."""
    task = next(iter(getattr(learner, "tasks", None) or ()), None)
    values = {"margin": 1.0, "similar": True, "task": task, "weight": 1.0}
    first, second = np.array([0, 1]), np.array([2, 3])
    row = list(range(learner.width)) if learner.width else Judgement(first, (first,), (second,))
    return row, {column: values[column] for column in learner.columns}
