"""Puts a replayed model into the store, so that workers go on from where the replay has ended."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from omdml.errors import CorruptError, Fenced, StoreError
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.letters import DeadLetters
from omdml.streams.placement import Placement, PlacementChanged
from omdml.streams.protocols.store import Claim, Store, Why, Written
from omdml.workers.configuration.wording import amount_is
from omdml.workers.operate.models import ATTEMPTS, busy
from omdml.workers.operate.replay import ReplayedModel


def check_absent(store: Store, name: str) -> None:
    """Raise StoreError if a version other than 0 of the model is in the store."""
    live = store.current(name)
    if live is not None and live.version:
        raise exists(name, live.version)


def check_whole(model: ReplayedModel, store: Store) -> None:
    """Raise StoreError if events of a model were on other partitions than its home, so they were not learned.

    Those below a mark are dead letters already, which nobody decides about here.
    """
    strays = [record for record, error, *_ in model.refused if error.reason == "wrong_partition"]
    marks = store.marks({record.partition for record in strays})
    elsewhere = sum(record.offset >= marks.get(record.partition, 0) for record in strays)
    if elsewhere:
        raise StoreError(
            f"{amount_is(elsewhere, 'event')} on other partitions than the home of model {model.name!r}: omdml doctor "
            "says what is wrong with their senders. Nothing was published; with --accept-gap such events become dead "
            "letters"
        )


def publish(
    model: ReplayedModel,
    store: Store,
    letters: DeadLetters,
    platform: str,
    replace: bool = False,
    since: Checkpoint | None = None,
) -> None:
    """Begin a model in the store, so that workers go on from where this one has read.

    1. claim    Claim the model. A crash changes nothing but the owner.
    2. letters  Write the refused events as dead letters, and wait until they are acknowledged. After a crash some are
                written again; readers recognize them by their position.
    3. replace  Replace the checkpoint. This is the step that counts: workers read on from where this one has read. A
                crash before it leaves what was learned before. After it, the worker that claims the model publishes it.
    4. publish  Publish the snapshot.

    With ``replace`` it is published before the checkpoint is saved, although a version may be pinned: no worker would
    publish it afterwards if what was live had a higher version. After a crash in between, workers go on with what was
    learned before. The last step is then to drop what the store keeps of the model's past. A crash leaves some of that:
    call this again.

    If a worker takes the model back between the steps, it is claimed again, a few times. The attempt that was fenced
    may have published: that version stays live until the worker publishes its own.

    Raises StoreError if the model exists already, if the log has no event of it, or if it has another checkpoint than
    ``since``; Fenced if a worker keeps taking it back; PlacementChanged if models live elsewhere now.

    Parameters
    ----------
    since
        The checkpoint that the store had before the log was read; no other one is replaced. None replaces any.
    """
    if model.home is None:
        raise StoreError(f"the log holds no event of model {model.name!r}: there is nothing to begin with")
    require_placement(model.home.topic_id, model.placement, store)
    # The trail is old, and nobody measures its freshness.
    model.trails.new = None
    claim = partial(claim_to_begin, model.name, store, replace, exists, since)
    epoch = claim()
    for record, error, name, _ in model.refused:
        letters.add(record, error, name)
    letters.flush()
    snapshot, home = model.snapshot(), model.home

    def put(epoch: str) -> Written:
        if replace:
            require_placement(home.topic_id, model.placement, store)
            if go_live(snapshot, epoch, store) is Written.FENCED:
                return Written.FENCED
        model.epoch = epoch
        return store.replace(model.checkpoint(platform), epoch, model.read.get(home, model.next), model.placement)

    put_in_place(model.name, home.topic_id, epoch, claim, put)
    finish = store.drop_earlier if replace else store.publish
    if finish(snapshot, model.epoch) is Written.FENCED and replace:
        raise Fenced(
            f"model {model.name!r} was replaced, and a worker has gone on with it since, so its earlier snapshots and "
            "history were not dropped: to drop them as well, stop the workers, and run this again"
        )


def require_placement(topic_id: str, placement: Placement, store: Store) -> None:
    """Raise PlacementChanged if models live elsewhere now."""
    if store.placement(topic_id) not in (None, placement):
        raise PlacementChanged(topic_id)


def claimed(name: str, store: Store, replace: bool) -> Claim:
    """Claim a model; with ``replace`` even if no checkpoint of it can be read.

    What cannot be read stays until the new checkpoint is saved: without it, a worker would begin the model with the
    events that wait.
    """
    try:
        return store.claim(name)
    except CorruptError as error:
        if not replace:
            raise
        return Claim(error.epoch, None)


def claim_to_begin(
    name: str,
    store: Store,
    replace: bool,
    exists: Callable[[str, int], StoreError],
    since: Checkpoint | None = None,
) -> str:
    """The epoch of a claim of a model that is to begin.

    Raises ``exists`` if it has a checkpoint that must stay, and StoreError if it has another one than ``since``.
    """
    claim = claimed(name, store, replace)
    if claim.checkpoint is not None and not replace:
        raise exists(name, claim.checkpoint.version)
    if since is not None and claim.checkpoint is not None and claim.checkpoint != since:
        raise StoreError(
            f"model {name!r} was changed while its log was read: a worker saved it, or somebody else ran omdml forget, "
            "learn-on or replay. What they did stays. Stop the workers, wait until such commands have ended, and run "
            "this again; name also the users whom the others have left out"
        )
    return claim.epoch


def put_in_place(name: str, topic_id: str, epoch: str, claim: Callable[[], str], put: Callable[[str], Written]) -> None:
    """Write a model under this epoch. If a worker took it meanwhile, claim it again: it does with its next event.

    Raises Fenced if a worker keeps taking it back, PlacementChanged if models live elsewhere now.
    """
    for attempt in range(ATTEMPTS):
        written = put(epoch if attempt == 0 else claim())
        if written is Written.MOVED:
            raise PlacementChanged(topic_id)
        if written is not Written.FENCED:
            return
    raise busy(name)


def go_live(snapshot: Snapshot, epoch: str, store: Store) -> Written:
    """Publish a snapshot, and end a pin that keeps it back."""
    written = store.publish(snapshot, epoch)
    live = store.current(snapshot.model)
    if live and live.pinned and written is not Written.FENCED:
        store.move(snapshot.model, None, pin=False, why=Why(reason="the model was learned again"))
    return written


def exists(name: str, version: int) -> StoreError:
    """The error for a model that is in the store already."""
    return StoreError(
        f"model {name!r} is in the store already, at version {version}: to begin it again, stop the workers and pass "
        "--replace: what is learned takes the place of its checkpoints, snapshots and history"
    )
