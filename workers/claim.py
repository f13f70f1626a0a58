"""Step 2 of the protocol: a model from the store, and what of its settings is not as it was when it was saved."""

from __future__ import annotations

from typing import NamedTuple

import structlog

from omdml.errors import ConfigurationError, CorruptError, StartError
from omdml.snapshot import Checkpoint, Snapshot
from streams.protocols import Store
from workers.guard import Guard
from workers.model import OwnedModel
from workers.specs import Spec

log = structlog.get_logger(__name__)


class Change(NamedTuple):
    """Something that changes learning: ``what`` the history calls it, and from what to what it went."""

    what: str
    told: str


class Claimed(NamedTuple):
    """A model that is ours. ``fell_back``: only an older checkpoint was sound."""

    model: OwnedModel
    fell_back: bool
    changes: list[Change]


def claim(name: str, spec: Spec, store: Store, platform: str) -> Claimed:
    """Become the owner of a model, and resume it with today's settings.

    Raises ConfigurationError where its state does not fit them or it cannot start, CorruptError where its state is none
    of its learner's, else what the store raises.
    """
    epoch, checkpoint, fell_back = store.claim(name)
    try:
        learner = spec.fresh() if checkpoint is None else spec.resumed(checkpoint)
    except StartError as error:
        raise ConfigurationError(f"model {name!r} cannot start: {error}") from error
    except CorruptError as error:
        raise CorruptError(f"checkpoint of model {name!r}: {error}; omdml models reset begins it anew") from error
    model = OwnedModel(name, learner, spec.catalogue, epoch, spec.digest, Guard(spec.guard, learner.metric))
    live = store.current(name)
    model.published = live.version if live else -1
    changes: list[Change] = []
    if checkpoint is not None:
        model.resume(checkpoint)
        changes = changed(checkpoint, spec, platform)
        if (before := model.progress.hold_out.every) != spec.guard.every:
            model.progress.hold_out.every = spec.guard.every
            changes.append(Change("adopted", f"guard: one event of {before} held back -> one of {spec.guard.every}"))
        if live and any(change.what == "generation" for change in changes):
            model.published -= 1  # what is live must be live again, under the generation that nodes have by now
    if model.progress.held:
        served = live_snapshot(name, store)
        model.guard = Guard(spec.guard, served.metric if served else None, model.progress.held)
    model.measure()
    log.info("model_claimed", model=name, version=learner.version, next=model.next, epoch=epoch)
    return Claimed(model, fell_back, changes)


def changed(checkpoint: Checkpoint, spec: Spec, platform: str) -> list[Change]:
    """What is not as it was when this checkpoint was saved."""
    pairs = {
        "generation": (checkpoint.generation, spec.catalogue.generation),
        "platform": (checkpoint.platform, platform),
    }
    found = [Change(what, f"{before} -> {now}") for what, (before, now) in pairs.items() if before != now]
    if checkpoint.configuration != spec.digest:
        found.append(Change("adopted", ", ".join(spec.differences(checkpoint)) or "other defaults"))
    return found


def live_snapshot(name: str, store: Store) -> Snapshot | None:
    """What nodes answer with; None where nothing is live, or it is damaged."""
    try:
        found = store.load(name)
    except CorruptError as error:
        log.warning("live_snapshot_damaged", model=name, reason=str(error))
        return None
    return found[1] if found else None
