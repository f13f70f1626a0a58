"""The contracts of everything that brings bytes in or takes bytes out; docstrings are the contract, suites test it."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError, StoreLost
from omdml.streams.catalogues.changes.change import Change, Changed, ChangeError, Prepared, Shown, Value
from omdml.streams.placement import Placement

# What only moves records needs no metric, which would bring numba and scipy: a second of processor.
if TYPE_CHECKING:
    from omdml.snapshot import Checkpoint, Snapshot
    from omdml.streams.describers.describer import Describer
    from omdml.streams.describers.thumbnails import Pictures


class Partition(NamedTuple):
    """An ordered part of a log. ``topic_id`` is the log's identity, not its name: a log created anew has another."""

    topic_id: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.number}"


class Record(msgspec.Struct, frozen=True, gc=False):
    """One event as it lies in the log.

    ``offset`` orders the records of a partition; offsets may leave gaps. ``timestamp`` is seconds since the epoch, or
    None if the log knows none. ``headers`` holds (name, bytes) pairs.
    """

    partition: Partition
    offset: int
    value: bytes
    key: bytes | None = None
    timestamp: float | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Listener(Protocol):
    """Told by a source, inside ``poll`` or ``close``, of what it was given and what was taken from it."""

    def assigned(self, committed: Mapping[Partition, int | None]) -> Mapping[Partition, int | None]:
        """Take over these partitions (with their committed offsets); answer where to start (None: the beginning).

        A partition that the answer leaves out is not read.
        """

    def revoked(self, partitions: Iterable[Partition]) -> None:
        """Save what can be saved within a third of the session timeout, and let go."""

    def lost(self, partitions: Iterable[Partition]) -> None:
        """Let go without saving: somebody else may already own them."""


class Source(Protocol):
    """A feedback log that is read in order, from positions the caller keeps. One thread uses it."""

    @property
    def topic_id(self) -> str:
        """The log's identity, not its name: a log that was created again under the same name has another one."""

    @property
    def partitions(self) -> int:
        """How many the log has, as of a second ago."""

    @property
    def partitioner(self) -> str:
        """How senders choose a partition by key: a name in :data:`omdml.streams.partitioners.PARTITIONERS`."""

    def subscribe(self, listener: Listener, read: int | None = None) -> None:
        """Ask for partitions; the listener hears of them inside a later ``poll``.

        The group shares out the first ``read`` partitions of the log, or all of them; the others go to nobody.
        """

    def poll(self, max_records: int, timeout_s: float) -> list[Record]:
        """Records in order within each partition, at most ``max_records``; waits up to ``timeout_s`` for the first.

        Raises
        ------
        GapError
            The log no longer holds the events at the position, or is not the log that the position belongs to.
        SourceError
            The log cannot be used (a folder without access, a compacted topic). A log that is out of reach for a
            while is waited for, in silence but for one log line: ``poll`` then answers an empty list.
        """

    def seek(self, partition: Partition, offset: int) -> None:
        """Continue this partition at its first record at or after ``offset``."""

    def commit(self, offsets: Mapping[Partition, int]) -> bool | None:
        """Record these offsets (first event not yet in a checkpoint) in the log's own books.

        True when recorded; False when this member no longer owns a partition, and must not write any more; None when
        the log is out of reach for now, or busy with a rebalance, and nobody can tell.
        """

    def progress(self) -> Mapping[Partition, tuple[int, int]]:
        """The offset of each owned partition's next record, and the log's end, if they are known."""

    @property
    def away(self) -> bool:
        """Whether the log is out of reach, as far as the last ``poll`` could tell."""

    def backlog(self, position: int, end: int) -> int:
        """How much of a partition lies between two of its offsets: offsets, or bytes if offsets tell of bytes."""

    def begin(self, partition: Partition) -> int:
        """The first offset that the log still holds of a partition; raises SourceError."""

    def end(self, partition: Partition) -> int:
        """The offset after the last record of a partition, as of now; raises SourceError."""

    def close(self) -> None:
        """Leave the group at once, so that another member can take over."""


class Sink(Protocol):
    """Where events go: a feedback log, or its dead letters."""

    def send(self, value: bytes, key: str | None = None, headers: Sequence[tuple[str, bytes]] = ()) -> None:
        """Queue one event. ``key`` (the model's name) keeps a model's events in one partition, in order.

        Raises SourceError if the sink can take no more for now.
        """

    def send_many(self, events: Sequence[tuple[bytes, str | None]]) -> None:
        """Queue events with their keys, in order; after an error nobody can tell how many of them were."""

    def flush(self, timeout_s: float = 30.0) -> None:
        """Return when everything sent is durable and acknowledged; raise SourceError when it could not be."""

    def close(self) -> None:
        """Flush, and let go."""


class Catalogue(Protocol):
    """The items' vectors, scaled already, and mapped if a model learns on that.

    Within a generation rows are only ever added. An item that changes gets a new row; its older rows, and those of
    deleted items, stay and are no items any more.
    """

    @property
    def dims(self) -> Mapping[str, int]:
        """Numbers an item has in each modality of ``features``."""

    @property
    def raw_dims(self) -> Mapping[str, int]:
        """Numbers an item has in each modality that raw vectors bring."""

    @property
    def generation(self) -> str:
        """Its name."""

    @property
    def first(self) -> int:
        """How many items the generation began with: starts look at these rows alone, so adding items changes none."""

    @property
    def ids(self) -> Sequence[str]:
        """The id of every row, in their order; rows that are no items any more have theirs still."""

    @property
    def sets(self) -> Mapping[str, NDArray[np.int64]]:
        """Row numbers of a set's elements by its id; empty if there are no sets. No set is named like an item."""

    @property
    def features(self) -> Mapping[str, NDArray[np.float32]]:
        """A matrix (n, d) a modality, float32, C-contiguous; a memory map will do. Row i belongs to ``ids[i]``."""

    def in_coordinates(self, coordinates: str) -> Catalogue:
        """The same items as models with ``coordinates = "features"``, or ``"mapped"``, see them.

        Raises CatalogueError if there is no map to make such coordinates.
        """

    @property
    def describer(self) -> Describer | None:
        """What describes pictures and texts; None if the catalogue was built from vectors alone.

        Raises CatalogueError if it is damaged, or needs a library that is not installed.
        """

    @property
    def pictures(self) -> Pictures:
        """Where the items' thumbnails are."""

    @property
    def shown(self) -> Shown:
        """Which rows are items by now."""

    @property
    def attributes(self) -> Mapping[str, Mapping[str, Value]]:
        """All attributes of each item of which a change said some."""

    @property
    def refreshed_at(self) -> float:
        """When somebody in this process last looked for changes, by the monotonic clock; 0 if nobody did."""

    def rows(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """Row numbers of these ids, the newest of each; -1 for one that is unknown or deleted."""

    def prepare(self, changes: Iterable[Change]) -> Prepared:
        """Changes of one request, ready to be made; raises ChangeError if its vectors or attributes do not fit."""

    def change(self, batches: Sequence[Prepared]) -> list[Changed | ChangeError]:
        """Make the changes of some requests: those of each whole, or not at all; what became of each.

        They are durable and taken in here on return; others take them in by a ``refresh()``. Raises CatalogueError
        if none was made, or if nobody knows whether they were: to repeat them does no harm.
        """

    def scale(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """Raw vectors (n, d) a modality, scaled (and mapped) as the catalogue's own were: a table as ``features`` is.

        Raises CatalogueError naming a missing or unknown modality, a wrong dimension, a value that is not finite.
        """

    def scale_some(self, vectors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """The same for vectors of some modalities, one at least: the others get their conditional means (MATHS 17)."""

    def refresh(self) -> int:
        """Take in what was added to the generation and changed since; answers how many rows. Rows keep their numbers.

        Whoever reads meanwhile asks for ``rows`` first, for ``features`` then. Raises CatalogueError if the place
        can no longer tell, as when it holds another generation by now.
        """


class Written(enum.StrEnum):
    """What became of a compare-and-set write."""

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
    """What a new owner gets. ``fell_back``: the newest checkpoint was damaged or gone, this is the one before it."""

    epoch: str
    checkpoint: Checkpoint | None
    fell_back: bool = False


class Marks(dict[Partition, int]):
    """Offsets by partition, and the store's present ``run``, a word that only tells whether it is still the same.

    A store that was started anew, failed over or was brought back from a copy has another one: it may have forgotten
    what was acknowledged. Empty if that cannot be told.
    """

    def __init__(self, offsets: Mapping[Partition, int], run: str) -> None:
        super().__init__(offsets)
        self.run = run


class CheckpointStore(Protocol):
    """Where learning resumes from."""

    def claim(self, model: str) -> Claim:
        """Become the owner: raise the model's epoch (counter and random nonce), answer its newest valid checkpoint.

        Raises CorruptError when checkpoints exist and none of them is valid, or one was saved and none is there.
        """

    def claim_all(self, models: Sequence[str]) -> list[Claim | CorruptError | StoreLost]:
        """Claim each of these models, sooner than one after another; answers in their order.

        The error that the claim of one model would raise is its answer, and keeps no other model from being claimed.
        After any other error some of them may have been claimed.
        """

    def positions(self, models: Sequence[str]) -> dict[str, ModelPosition]:
        """The positions of the newest checkpoints; their bytes are not read. It takes about as long as for one model.

        A model without a checkpoint is absent.

        Where the newest was found to be damaged, that of the one before it: what a claim would answer.
        """

    def peek(self, model: str) -> Checkpoint | None:
        """The newest valid checkpoint, without becoming the owner; None if there is none."""

    def save(
        self, checkpoint: Checkpoint, epoch: str, back: bool = False, placement: Placement | None = None
    ) -> Written:
        """Keep this checkpoint if ``epoch`` still owns the model and its position is not behind the kept one.

        Behind it only if it is to go ``back``: late writes of an earlier owner look alike. If a ``placement`` is
        given, and another one is recorded for the log of the checkpoint's home, the answer is MOVED: what was learned
        under the earlier one may belong to another partition by now.
        The checkpoint before it is kept as well. Raises StoreLost if the store knows no epoch of the model.
        """

    def save_all(
        self, saves: Sequence[tuple[Checkpoint, str]], placement: Placement | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        """Save each of these checkpoints under its epoch, as :meth:`claim_all` claims. No model is there twice."""

    def secret(self) -> bytes:
        """32 random bytes, made when they are first asked for and never changed: they say which events are held out.

        They travel with every copy of the store. Nodes neither need them nor may read them: whoever knows
        them knows which events new versions are judged by. Raises StoreError if what is kept is no secret.
        """

    def kept_secret(self) -> bytes | None:
        """The same; None if nobody has asked for it yet: none is made."""

    def models(self) -> list[str]:
        """Names of the models kept here, sorted."""

    def delete(self, model: str) -> None:
        """Forget everything about a model: checkpoints, snapshots, history, epoch."""


class MarkStore(Protocol):
    """Where models live, and up to where everything is in checkpoints."""

    def placement(self, topic_id: str) -> Placement | None:
        """Where the models of a log live; None before the first worker recorded it. Raises StoreError if damaged."""

    def place(self, topic_id: str, before: Placement | None, after: Placement) -> bool:
        """Record where the models of a log live, if the record still is ``before``, or is ``after`` already.

        False if it is neither: nothing was recorded.
        """

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset of each partition below which everything is in checkpoints; absent where never set."""

    def move_mark(self, partition: Partition, before: int | None, offset: int) -> bool:
        """Set the mark of a partition, if it still is what it was ``before`` (None: absent), or is ``offset`` already.

        False if it is neither: nothing was set.
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


class Why(NamedTuple):
    """Who moved a pointer, and for what reason, as the history tells it; empty if nobody said so."""

    actor: str = ""
    reason: str = ""


NOBODY = Why()


class Watch(Protocol):
    """A cheap wait for news; hints may be lost or spurious, so pointers are polled as well."""

    def wait(self, timeout_s: float) -> set[str]:
        """Models that may have moved, as soon as there is one; empty after ``timeout_s``."""

    def close(self) -> None:
        """Let go."""


class SnapshotStore(Protocol):
    """What nodes serve from."""

    @property
    def store_id(self) -> str:
        """The store's random id: another one after it was emptied; empty if nothing was ever claimed."""

    def publish(self, snapshot: Snapshot, epoch: str, held: str = "") -> Written:
        """Keep the snapshot and move the pointer to it, if ``epoch`` owns the model.

        The pointer stays where it is while it is pinned, or where ``held`` says why this snapshot must not go live; the
        history tells. Versions of one epoch only grow: a lower one is FENCED. Raises StoreLost as ``save`` does.
        """

    def publish_all(
        self, publications: Sequence[tuple[Snapshot, str, str]]
    ) -> list[Written | CorruptError | StoreLost]:
        """Publish each of these (snapshot, epoch, held), as ``claim_all`` claims. No model is there twice."""

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
        """Tell the history something about the live snapshot, if ``epoch`` owns the model; the pointer stays.

        ALREADY if nothing is live yet: there is nothing to tell of. Raises StoreLost as ``save`` does.
        """

    def move(self, model: str, version: int | None, pin: bool, why: Why = NOBODY) -> Pointer:
        """Point at a kept version and pin or unpin; the history tells ``why``. Raises StoreError if it is not kept.

        None is the newest that was published, or would have been but for a pin: never one withheld for a reason. Of
        several snapshots with one number it is, here and in ``load``, what is live, else the newest that was allowed.
        """

    def watch(self, models: Iterable[str]) -> Watch:
        """Hints about these models."""


class Store(CheckpointStore, MarkStore, SnapshotStore, Protocol):
    """Where learning resumes from, and where nodes serve from, in one place: what every backend offers."""
