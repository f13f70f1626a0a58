"""What a new model begins with: nothing learned, or what its parent serves now."""

from __future__ import annotations

from functools import lru_cache

import structlog

from omdml.errors import CorruptError, ParameterError
from omdml.streams.part_names import part_of
from omdml.streams.protocols.store import Store
from omdml.workers.configuration.specs import Spec, Start
from omdml.workers.model.parts.merged_model import start_of_parts

NOTHING = "it has learned nothing yet"
# How many reasons are remembered, to log each of them once.
REASONS = 64

log = structlog.get_logger(__name__)


def beginning(spec: Spec, store: Store, name: str = "") -> Start:
    """What a model begins with now; raises StartError as the specification does, and what the store raises.

    Its parent may be learned by another worker, on another partition: what that published last is read, and nobody
    waits for more. The start that this makes is kept, because a pattern's models come by the thousand.

    If ``name`` is that of a part, it begins with what all parts of its model begin with; raises CorruptError if that is
    not known.
    """
    if part := part_of(name):
        learner = start_of_parts(part.model, spec, store)
        return Start(learner, learner.metric)
    own_start = spec.start()
    if not spec.parent:
        return own_start
    pointer, generation = store.current(spec.parent), spec.catalogue.generation
    if pointer is None:
        return _start_without_parent(spec, NOTHING)
    key = f"{generation} {pointer.digest}"
    if key not in spec.starts:
        start = _from_parent(spec, store)
        if start is own_start:
            return own_start
        # Only the newest is kept: a parent may move many times a second.
        for older in set(spec.starts) - {generation}:
            del spec.starts[older]
        spec.starts[key] = start
    return spec.starts[key]


def _from_parent(spec: Spec, store: Store) -> Start:
    try:
        loaded = store.load(spec.parent)
        if loaded is None or not loaded[1].version:
            return _start_without_parent(spec, NOTHING)
        if (theirs := loaded[1].generation) != (ours := spec.catalogue.generation):
            return _start_without_parent(spec, f"it is of the catalogue's generation {theirs}, today's is {ours}")
        return spec.start(loaded[1])
    except (CorruptError, ParameterError) as error:
        return _start_without_parent(spec, str(error))


def _start_without_parent(spec: Spec, why: str) -> Start:
    """The start without the parent, and a line in the log if that was not said yet."""
    _log_once(spec.label, spec.parent, why)
    return spec.start()


@lru_cache(REASONS)
def _log_once(models: str, parent: str, why: str) -> None:
    """Log once that the models of a name or pattern begin without their parent, and why."""
    log.warning("parent_not_used", models=models, parent=parent, reason=why, action="they begin from nothing")
