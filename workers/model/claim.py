"""Step 2 of the protocol: claim a model from the store, and find out which of its settings changed since its save."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import structlog

from omdml.errors import ConfigurationError, CorruptError, FormatError, StartError, StoreLost
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.protocols.store import Claim, Pointer, Store
from omdml.streams.stores.checkpoints import how_to_mend
from omdml.streams.stores.journal import PUBLICATIONS
from omdml.workers.configuration.config import is_pattern
from omdml.workers.configuration.specs import Spec, Start
from omdml.workers.model.beginning import beginning
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.model.parts.vector import record_of, was_in_parts

# How many starts are kept: of patterns, and of generations of their catalogues.
STARTS = 64
# Parents make another start with each version, so older starts are of no use.
PARENTS = 4

log = structlog.get_logger(__name__)

# One guard for each start: so a start is examined once, and not once for every model of a pattern.
_guard_of = lru_cache(STARTS)(Guard)
_guard_of_child = lru_cache(PARENTS)(Guard)


class ChangedSetting(NamedTuple):
    """A setting that changes learning: ``what`` is the history's word for it, ``transition`` its old and new value."""

    what: str
    transition: str


class Claimed(NamedTuple):
    """A model that is ours. ``fell_back``: this is not the checkpoint that was saved last, but an older one."""

    model: OwnedModel
    fell_back: bool
    changes: list[ChangedSetting]
    # It begins with what its parent served, and must be saved before it learns: nothing else records that.
    from_parent: bool = False


def claim(name: str, spec: Spec, store: Store, platform: str) -> Claimed:
    """Become the owner of a model, and resume it with today's settings.

    Raises ConfigurationError if its state does not fit them or it cannot start, CorruptError if its state is not
    one of its learner, and what the store raises.
    """
    claimed, live = store.claim(name), store.current(name)
    return resume_claimed(name, spec, claimed, live, store, platform, store.secret())


def claim_all(
    names: Sequence[str], specs: Mapping[str, Spec], store: Store, platform: str
) -> dict[str, Claimed | CorruptError | StoreLost]:
    """Claim many models at once, in a few round trips to the store.

    The answer about a model that cannot be read is that error; raises anything else that :func:`claim` raises.
    """
    if not names:
        return {}
    claims = store.claim_all(names)
    results: dict[str, Claimed | CorruptError | StoreLost] = {}
    pointers, secret = store.current_all(names), store.secret()
    for name, claimed, live in zip(names, claims, pointers, strict=True):
        if isinstance(claimed, CorruptError | StoreLost):
            results[name] = claimed
            continue
        try:
            results[name] = resume_claimed(name, specs[name], claimed, live, store, platform, secret)
        except CorruptError as error:
            results[name] = error
    return results


def resume_claimed(
    name: str, spec: Spec, claimed: Claim, live: Pointer | None, store: Store, platform: str, secret: bytes
) -> Claimed:
    """Make the model of a claim, from its checkpoint or from its start; raises as :func:`claim` does.

    Parameters
    ----------
    live
        The pointer after the claim.
    secret
        The store's.
    """
    epoch, checkpoint, fell_back = claimed
    try:
        start = None
        if checkpoint is None:
            start = beginning(spec, store, name)
            learner, guard = copy.deepcopy(start.learner), first_guard(spec, start)
        else:
            if record_of(checkpoint) is not None:
                raise was_in_parts(name)
            learner = spec.resumed(checkpoint)
            guard = Guard(spec.guard, learner.metric)
    except StartError as error:
        raise ConfigurationError(f"model {name!r} cannot start: {error}") from error
    except FormatError as error:
        raise FormatError(f"checkpoint of model {name!r}: {error}") from error
    except CorruptError as error:
        raise CorruptError(f"checkpoint of model {name!r}: {error}. {how_to_mend(name)}") from error
    model = OwnedModel(name, learner, spec.catalogue, epoch, spec.digest, guard, secret, spec.max_share_a_user)
    model.judge.first_metric = spec.first_metric
    model.published = last_published(name, learner.version, live, store)
    changes: list[ChangedSetting] = []
    if checkpoint is not None:
        model.resume(checkpoint)
        changes = changed(checkpoint, spec, platform)
        changes += adopt_hold_out(model, spec)
        if live and any(change.what == "generation" for change in changes):
            # The live version counts as not published, so that it is published again under the new generation.
            model.published -= 1
    model.shrink()
    parent = start and start.parent
    fields = {"model": name, "version": learner.version, "next": model.next, "epoch": epoch}
    if parent is not None:
        fields |= {"parent": spec.parent, "parent_version": parent}
    if checkpoint is None and is_pattern(spec.label):
        # A pattern may begin thousands of models a second. Their claimer logs them together.
        log.debug("model_claimed", **fields)
    else:
        log.info("model_claimed", **fields)
    return Claimed(model, fell_back, changes, from_parent=parent is not None)


def last_published(name: str, version: int, live: Pointer | None, store: Store) -> int:
    """The version that was published last of a model that resumes at this version; -1 if none was."""
    if live is None:
        return -1
    if live.version <= version:
        return live.version
    # The live version was published ahead of the checkpoint, or learned before a reset. The history tells which.
    versions = [move["version"] for move in store.history(name) if move["what"] in PUBLICATIONS]
    return int(versions[-1]) if versions else live.version


def first_guard(spec: Spec, start: Start) -> Guard:
    """A guard that compares with the start."""
    guard_of = _guard_of if start.parent is None else _guard_of_child
    return guard_of(spec.guard, start.metric).another()


def out_of_reach(name: str, end: int, begin: int) -> CorruptError:
    """The error for a model that fell back to a checkpoint which ends before the log begins."""
    return CorruptError(
        f"model {name!r}: its newest checkpoint is damaged, or an older one was put in its place. The one that is left "
        f"ends at offset {end}, but the log begins at {begin}. {how_to_mend(name)}"
    )


def adopt_hold_out(model: OwnedModel, spec: Spec) -> list[ChangedSetting]:
    """Have events held out as the configuration and the store say today; returns what is not as it was."""
    hold_out, changes = model.progress.hold_out, []
    if (before := hold_out.every) != spec.guard.every:
        hold_out.every = spec.guard.every
        changes.append(ChangedSetting("adopted", f"guard: one event of {before} held out -> one of {spec.guard.every}"))
        if not before:
            # Nothing was compared while the guard was off: the present metric becomes its first reference.
            model.judge.compare_by(Guard(spec.guard, model.learner.metric))
    if (secret_before := hold_out.secret) != model.judge.draw.fingerprint:
        hold_out.secret = model.judge.draw.fingerprint
        if secret_before:
            changes.append(ChangedSetting("adopted", "the store's secret is another one: other events are held out"))
    return changes


def changed(checkpoint: Checkpoint, spec: Spec, platform: str) -> list[ChangedSetting]:
    """Which settings changed since this checkpoint was saved."""
    pairs = {
        "generation": (checkpoint.generation, spec.catalogue.generation),
        "platform": (checkpoint.platform, platform),
    }
    changes = [ChangedSetting(what, f"{before} -> {now}") for what, (before, now) in pairs.items() if before != now]
    if checkpoint.configuration != spec.digest:
        changes.append(ChangedSetting("adopted", ", ".join(spec.differences(checkpoint)) or "other defaults"))
    return changes


def served_snapshot(name: str, store: Store, version: int | None = None) -> Snapshot | None:
    """The snapshot that nodes answer with, or the one of ``version``; None if there is none.

    A damaged one is logged, and counts as none.
    """
    try:
        loaded = store.load(name, version)
    except CorruptError as error:
        action = "what was learned is published in its place"
        log.warning("snapshot_damaged", model=name, version=version, reason=str(error), action=action)
        return None
    return loaded[1] if loaded else None
