"""The contract of stores: checkpoints to resume from, watermarks, snapshots to serve from."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from omdml.errors import CorruptError, StoreLost
from omdml.streams.placement import Assumed, Placement
from omdml.streams.protocols.log import Partition

# What only moves records needs no metric, which would bring numba and scipy: a second of processor.
if TYPE_CHECKING:
    from omdml.snapshot import Checkpoint, Snapshot


class Written(enum.StrEnum):
    """The outcome of a compare-and-set write."""

    STORED = "stored"
    # The same bytes are there: this is a retry.
    ALREADY = "already"
    # Another epoch owns the model, or its position is ahead: nothing was written.
    FENCED = "fenced"
    # The models were placed on other partitions: nothing was written.
    MOVED = "moved"


class ModelPosition(NamedTuple):
    """How far a model is taken: ``next`` is the offset after the last event taken from its ``home``."""

    home: Partition
    next: int


class Claim(NamedTuple):
    """What a new owner gets. ``fell_back``: this is not the checkpoint that was saved last, but an older one.

    The one saved last was damaged or removed, or the older one was put in its place.
    """

    epoch: str
    checkpoint: Checkpoint | None
    fell_back: bool = False


class Marks(dict[Partition, int]):
    """Offsets by partition, the store's present ``run``, and the number of replacements in it.

    A replacement is a checkpoint that was replaced, or a mark that was moved, from outside of workers.

    A store that was started again, failed over or was restored from a copy has another run, and may have forgotten what
    was acknowledged. ``run`` is empty if the store cannot tell.
    """

    def __init__(self, offsets: Mapping[Partition, int], run: str, replacements: int = 0) -> None:
        super().__init__(offsets)
        self.run, self.replacements = run, replacements


class CheckpointStore(Protocol):
    """Stores checkpoints, from which learning resumes."""

    def claim(self, model: str) -> Claim:
        """Become the owner: raise the model's epoch (counter and random nonce), answer its newest valid checkpoint.

        Raises CorruptError when checkpoints exist and none of them is valid, or one was saved and none is there. The
        error has the new epoch: the caller is the owner all the same, and may replace the checkpoints.
        """

    def claim_all(self, models: Sequence[str]) -> list[Claim | CorruptError | StoreLost]:
        """Claim each of these models, faster than one after another; answers in their order.

        The error that the claim of one model would raise is its answer, and keeps no other model from being claimed.
        After any other error some of them may have been claimed.
        """

    def positions(self, models: Sequence[str]) -> dict[str, ModelPosition]:
        """The position of each model's newest checkpoint, in about the time that one takes: no checkpoint is read.

        A model without a checkpoint is absent. If the newest one is known to be damaged, the answer is the position of
        the one before it, which a claim would answer.
        """

    def peek(self, model: str) -> Checkpoint | None:
        """The newest valid checkpoint, without becoming the owner; None if there is none."""

    def fell_back(self, model: str) -> bool:
        """Whether another checkpoint was saved after the one that can be claimed, or none is left of those saved.

        This does not read checkpoints: it knows of damage only if somebody claimed the model since.
        """

    def save(
        self, checkpoint: Checkpoint, epoch: str, back: bool = False, placement: Placement | None = None
    ) -> Written:
        """Keep this checkpoint if ``epoch`` still owns the model and its position is not behind the kept one.

        With ``back`` it may be behind. Without, such a write is FENCED, because late writes of an earlier owner look
        alike. If a ``placement`` is given, and another one is recorded for the log of the checkpoint's home, the answer
        is MOVED: what was learned under the earlier one may belong to another partition now. The checkpoint before this
        one is kept as well. Raises StoreLost if the store knows no epoch of the model.
        """

    def save_all(
        self, saves: Sequence[tuple[Checkpoint, str]], placement: Placement | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        """Save each of these checkpoints under its epoch, as :meth:`claim_all` claims. No model is there twice."""

    def replace(self, checkpoint: Checkpoint, epoch: str, reread: int, placement: Placement | None = None) -> Written:
        """As :meth:`save` with ``back``; and the owner of the checkpoint's home begins again, at this offset or below.

        An owner may have passed over events because the checkpoint before this one had them. So in the same step the
        mark goes back to ``reread``, unless it is below, and the count of replacements grows. A retry may count again.
        """

    def secret(self) -> bytes:
        """32 random bytes, made when they are first asked for and never changed: they say which events are held out.

        They travel with every copy of the store. Nodes neither need them nor may read them: whoever knows
        them knows which events new versions are judged by. Raises StoreError if what is kept is no secret.
        """

    def kept_secret(self) -> bytes | None:
        """The secret; None if nobody has asked for it yet. This makes none."""

    def models(self) -> list[str]:
        """Names of the models kept here, sorted."""

    def delete(self, model: str) -> None:
        """Delete everything about a model: checkpoints, snapshots, history, epoch."""


class MarkStore(Protocol):
    """Stores the placement of models, the group that reads, and the watermark of each partition."""

    def placement(self, topic_id: str) -> Placement | None:
        """The placement of a log's models; None before a worker recorded it. Raises StoreError if it is damaged."""

    def place(self, topic_id: str, before: Placement | None, after: Placement) -> bool:
        """Record where the models of a log live, if the record still is ``before``, or is ``after`` already.

        False if it is neither: nothing was recorded.
        """

    def group(self, topic_id: str) -> str:
        """The group of the worker that began to read a log last; empty before a worker recorded it."""

    def note_group(self, topic_id: str, group: str) -> None:
        """Record the group that reads a log: commands that need stopped workers look for the members of this one."""

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset of each partition below which everything is in checkpoints; absent if it was never set."""

    def move_mark(self, partition: Partition, before: int | None, offset: int, replacements: int | None = None) -> bool:
        """Set the mark of a partition, if it still is what it was ``before`` (None: absent), or is ``offset`` already.

        An owner gives the ``replacements`` that it knows of: there may be no other. If they are not given, the mark is
        set from outside, which counts as a replacement: an owner that wakes up later moves nothing, even if the mark is
        what it was. False: nothing was set.

        In a folder this is a look and a write: of two who move a mark at the same time, both may get True. The mark is
        then what one of them set, and the next move of the other one is refused. A lock would prevent that, but a
        process that sleeps while it holds the lock would keep all others from moving marks.
        """


class Pointer(msgspec.Struct, frozen=True):
    """Which snapshot is live. ``serial`` only grows within one ``store_id``: nodes order by it, not by version."""

    serial: int
    version: int
    digest: str
    epoch: str
    published_at: float
    pinned: bool = False
    store_id: str = ""

    @property
    def snapshot(self) -> tuple[int, str]:
        """The version and the digest of the live snapshot."""
        return self.version, self.digest


class Why(NamedTuple):
    """Who moved a pointer and for what reason, for the history. Both may be empty."""

    actor: str = ""
    reason: str = ""


NOBODY = Why()


class Watch(Protocol):
    """A cheap wait for news; hints may be lost or spurious, so pointers are polled as well.

    A store that is out of reach is no error here, also if the watch begins then: there are no hints until it is back.
    Whoever polls pointers gets the error.
    """

    def wait(self, timeout_s: float) -> set[str]:
        """Models whose history may have changed, as soon as there is one; empty after ``timeout_s``."""

    def close(self) -> None:
        """End a wait, and release what the watch holds. The store stays usable, also for other watches."""


class SnapshotStore(Protocol):
    """Stores snapshots, from which nodes answer queries."""

    @property
    def store_id(self) -> str:
        """The store's random id: another one after it was emptied; empty if nothing was ever claimed."""

    def publish(self, snapshot: Snapshot, epoch: str, withheld: str = "", assumed: Assumed | None = None) -> Written:
        """Keep the snapshot and move the pointer to it, if ``epoch`` owns the model.

        The pointer does not move while it is pinned, or if ``withheld`` says why this snapshot must not go live; the
        history tells. Versions of one epoch only grow: a lower one is FENCED. If another placement than the ``assumed``
        one is recorded, the answer is MOVED, and nothing is kept: the next owner makes dead letters of what was learned
        here, so no node may see it. Raises StoreLost as ``save`` does.
        """

    def publish_all(
        self, publications: Sequence[tuple[Snapshot, str, str]], assumed: Assumed | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        """Publish each of these (snapshot, epoch, withheld), as ``claim_all`` claims. No model is there twice."""

    def current(self, model: str) -> Pointer | None:
        """The live pointer, cheaply; None if nothing was published."""

    def current_all(self, models: Sequence[str]) -> list[Pointer | None]:
        """The live pointers of these models, in their order, in about the time of one."""

    def load(self, model: str, version: int | None = None) -> tuple[Pointer, Snapshot] | None:
        """The live snapshot, or the kept one of ``version``; None if there is none. Raises CorruptError.

        The pointer to a version that is not live is the one that its publication set, with serial 0 if it set none.
        """

    def history(self, model: str) -> list[dict[str, Any]]:
        """Moves of the pointer, oldest first: ``{"what", "version", "serial", "at", ...}``."""

    def note(self, model: str, epoch: str, what: str, reason: str) -> Written:
        """Add a remark about the live snapshot to the history, if ``epoch`` owns the model. The pointer stays.

        ALREADY if nothing is live yet. Raises StoreLost as ``save`` does.
        """

    def move(self, model: str, version: int | None, pin: bool, why: Why = NOBODY) -> Pointer:
        """Point at a kept version and pin or unpin; the history tells ``why``. Raises StoreError if it is not kept.

        None stands for the newest version that the guard did not withhold, even if a pin kept it from going live.
        Several snapshots may have one number. Then it means, here and in ``load``, the one that is live, or else the
        newest that the guard did not withhold.
        """

    def watch(self, models: Iterable[str]) -> Watch:
        """Start to receive hints that these models' histories changed: pointers moved, or models were deleted."""


class Store(CheckpointStore, MarkStore, SnapshotStore, Protocol):
    """A whole store: checkpoints, marks and snapshots in one place. Every backend offers all of it."""

    def drop_earlier(self, snapshot: Snapshot, epoch: str) -> Written:
        """Drop all earlier snapshots and entries of the history, and all checkpoints but the newest.

        FENCED, and nothing dropped, unless ``epoch`` owns the model and the snapshot is live. A crash may leave some of
        what was to go: call it again. Raises StoreLost as ``save`` does.
        """
