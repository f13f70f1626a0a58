"""Resets and copies models in the store while workers and nodes run."""

from __future__ import annotations

from copy import deepcopy

from omdml.errors import ConfigurationError, CorruptError, Fenced, FormatError, StoreError, StoreLost
from omdml.learners import Learner
from omdml.messages.suggestion import suggestion
from omdml.snapshot import Checkpoint
from omdml.streams.placement import Placement, PlacementChanged
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Store, Written
from omdml.workers.configuration.model_names import can_be_kept, too_long
from omdml.workers.configuration.specs import Spec, Specs
from omdml.workers.model.beginning import beginning
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.owned_model import OwnedModel

# How often to try: a worker that learns the model may claim it back between our claim and our save.
ATTEMPTS = 5


def configured_spec(specs: Specs, name: str) -> Spec:
    """The specification of a model.

    Raises ConfigurationError if no configured model covers its name, or if no event could ever name it.
    """
    if not can_be_kept(name):
        raise ConfigurationError(too_long(name))
    spec = specs.find(name)
    if spec is None:
        hint = suggestion(name, specs.configuration.models)
        raise ConfigurationError(f"no model {name!r} is configured{hint}")
    return spec


def require(store: Store, name: str) -> None:
    """Raise StoreError if the store does not have the model; the message suggests the nearest name."""
    if name not in store.models():
        raise StoreError(f"model {name!r}: {store} has no model of this name{suggestion(name, store.models())}")


def finish_deletion(store: Store, name: str) -> None:
    """Delete what an interrupted deletion of a model has left: its name is gone first, and its files after that."""
    if name and can_be_kept(name) and name not in store.models():
        store.delete(name)


def reset(store: Store, spec: Spec, name: str, platform: str) -> int | None:
    """Begin a model again from its start; it goes on with the next event. Returns the offset of that event.

    1. claim    Claim the model. Its worker is fenced, and drops what it learned since its last save.
    2. publish  Publish version 0. A crash before it changes nothing.
    3. save     Save the start, at the same position. After a crash before it, what was learned is live again with the
                next event.

    If the newest checkpoint cannot be read, its position is not known either. Then the model is deleted, a worker that
    waits for it begins it again, and None is returned. Raises StoreError if there is nothing to reset, Fenced if a
    worker keeps taking the model back.
    """
    require(store, name)
    for _ in range(ATTEMPTS):
        claim = readable_claim(name, store)
        if claim is None:
            store.delete(name)
            model = begun(spec, name, store.claim(name).epoch, store)
            store.publish(model.snapshot(), model.epoch)
            return None
        epoch, checkpoint = claim
        if checkpoint is None:
            raise StoreError(f"model {name!r}: {store} has no checkpoint of it: it is at its start already")
        model = begun(spec, name, epoch, store)
        model.home, model.next = position_now(name, Partition(*checkpoint.home), checkpoint.next, store)
        if Written.FENCED in (store.publish(model.snapshot(), epoch), store.save(model.checkpoint(platform), epoch)):
            continue
        store.note(name, epoch, "reset", f"was at version {checkpoint.version}")
        return model.next
    raise busy(name)


def readable_claim(name: str, store: Store) -> tuple[str, Checkpoint | None] | None:
    """Claim a model: the epoch, and its newest checkpoint if it has one; None if that is damaged.

    Raises FormatError if another release wrote it: that release can still read it.
    """
    try:
        epoch, checkpoint, fell_back = store.claim(name)
    except FormatError:
        raise
    except CorruptError:
        return None
    return None if fell_back else (epoch, checkpoint)


def position_now(name: str, home: Partition, offset: int, store: Store) -> tuple[Partition, int]:
    """Where a model that was saved at this position goes on.

    If it lives on another partition now, it goes on where the worker of that partition begins. It may have learned
    more there already, but a model that forgets everything forgets that, too.
    """
    placement = store.placement(home.topic_id)
    number = placement.home(name) if placement else home.number
    if placement is None or number == home.number:
        return home, offset
    return Partition(home.topic_id, number), placement.since(number)


def copy(store: Store, source: str, target: str, spec: Spec, topic_id: str, placement: Placement, platform: str) -> int:
    """Begin a model with what another one learned; returns its version.

    The new model goes on from the mark of its partition, because nobody reads again what is below it. If it is learned
    in parts, the part of its home partition begins with what was learned, and the other parts begin with nothing.

    Parameters
    ----------
    spec
        The specification of the new model, with the same learner, dimensions and shapes.
    topic_id, placement
        The identity of the log, and the partitions that its models live on.

    Raises StoreError if the source does not exist or the target does, ConfigurationError if the settings do not fit,
    PlacementChanged if models live elsewhere now.
    """
    require(store, source)
    learned, existing = store.peek(source), store.peek(target)
    if learned is None:
        raise StoreError(f"model {source!r}: {store} has no checkpoint of it: nothing was learned yet")
    if existing is not None:
        raise StoreError(
            f"model {target!r} is in {store} already, at version {existing.version}: first run "
            f"omdml models delete {target}"
        )
    learner, whole_name = resumed(spec, learned), target
    if spec.parts:
        from omdml.workers.operate import parts

        target = parts.begin_with(learned, store, whole_name, spec, topic_id, placement, platform)
    claim = store.claim(target)
    model = owned(spec, target, learner, claim.epoch)
    home = Partition(topic_id, placement.home(target))
    model.home, model.next = home, store.marks([home]).get(home, 0)
    try:
        saved = store.save(model.checkpoint(platform), claim.epoch, placement=placement)
        if saved is Written.MOVED:
            raise PlacementChanged(topic_id)
        if saved is Written.FENCED:
            raise busy(target)
        if not spec.parts:
            # A worker publishes what is in parts.
            store.publish(model.snapshot(), claim.epoch)
            store.note(target, claim.epoch, "copied", f"from {source}, version {learned.version}")
    except StoreLost as error:
        raise StoreError(
            f"model {target!r} was deleted while it was copied, so it does not exist: copy it again"
        ) from error
    return model.learner.version


def begun(spec: Spec, name: str, epoch: str, store: Store) -> OwnedModel:
    """A model at its start. If it has a parent, it starts with what the parent serves."""
    return owned(spec, name, deepcopy(beginning(spec, store).learner), epoch)


def owned(spec: Spec, name: str, learner: Learner, epoch: str) -> OwnedModel:
    """A model with this learner that can be saved."""
    guard = Guard(spec.guard, learner.metric)
    share = spec.max_share_a_user
    return OwnedModel(name, learner, spec.catalogue, epoch, spec.digest, guard, max_share_a_user=share)


def resumed(spec: Spec, learned: Checkpoint) -> Learner:
    """The learner in another model's checkpoint; raises ConfigurationError if it does not fit the specification."""
    try:
        return spec.resumed(learned)
    except ConfigurationError as error:
        raise ConfigurationError(f"a copy needs the same learner and shapes: {error}") from error


def busy(name: str) -> Fenced:
    """The error for a model that a worker took back at every attempt."""
    return Fenced(f"model {name!r}: a worker took it back {ATTEMPTS} times: stop the workers, and try again")
