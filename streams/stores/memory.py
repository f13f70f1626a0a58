"""A store in memory, for replays, embedding and tests: what it holds ends with the process."""

from __future__ import annotations

import secrets
import threading
import uuid
from collections.abc import Iterable, Sequence

from omdml.errors import CorruptError, StoreLost
from omdml.snapshot import Checkpoint
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Claim, Marks, ModelPosition, Watch, Written
from omdml.streams.stores.checkpoints import Saved, next_epoch, none_valid, placed_elsewhere, read_checkpoint
from omdml.streams.stores.journal import JournalEntry, SnapshotKey, newest_publication
from omdml.streams.stores.journaled import JournaledSnapshots
from omdml.streams.stores.many import one_by_one
from omdml.streams.stores.retention import RETENTION, RetentionOf


class MemoryModel:
    """Everything about one model; also the journal of its snapshots. All under the store's lock."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self.owner: str | None = None
        # The newest one is first.
        self.checkpoints: list[tuple[Saved, bytes]] = []
        # How many of these the last claim passed over.
        self.damaged = 0
        self.saved_last: Saved | None = None
        self._journal: dict[int, JournalEntry] = {}
        self._last = 0
        self._bytes: dict[SnapshotKey, bytes] = {}

    def last(self) -> tuple[int, JournalEntry | None]:
        """The last entry and its number."""
        with self._changed:
            return self._last, self._journal.get(self._last)

    def newest(self) -> JournalEntry | None:
        """The last entry that added a snapshot."""
        return newest_publication(entry for _, entry in self.entries())

    def entries(self) -> list[tuple[int, JournalEntry]]:
        """All entries that were not dropped, with their numbers."""
        with self._changed:
            return list(self._journal.items())

    def append(self, number: int, entry: JournalEntry, epoch: str | None = None) -> bool:
        """Add an entry and wake the watches."""
        with self._changed:
            if number != self._last + 1 or epoch not in (None, self.owner):
                return False
            self._journal[number] = entry
            self._last = number
            self._changed.notify_all()
            return True

    def drop_entries(self, numbers: Iterable[int]) -> None:
        """Drop the entries of these numbers."""
        with self._changed:
            for number in numbers:
                self._journal.pop(number, None)

    def write(self, key: SnapshotKey, data: bytes) -> None:
        """Keep the bytes of a snapshot."""
        self._bytes[key] = data

    def read(self, key: SnapshotKey) -> bytes | None:
        """The bytes of a snapshot; None if they are gone."""
        return self._bytes.get(key)

    def drop_snapshots(self, keys: Iterable[SnapshotKey]) -> None:
        """Drop the bytes of these snapshots."""
        for key in keys:
            self._bytes.pop(key, None)

    def keep_only(self, key: SnapshotKey) -> None:
        """Drop the bytes of every other snapshot."""
        self._bytes = {other: data for other, data in self._bytes.items() if other == key}


class MemoryStore(JournaledSnapshots):
    """A Store (see streams/protocols/store.py); any number of threads may use it.

    Parameters
    ----------
    retention
        Which snapshots stay when new ones come.
    secret
        Random if None.
    """

    def __init__(self, retention: RetentionOf = RETENTION, secret: bytes | None = None) -> None:
        super().__init__(retention)
        self._store_id = uuid.uuid4().hex
        self._secret = secret or secrets.token_bytes(32)
        self._changed = threading.Condition()
        self._models: dict[str, MemoryModel] = {}
        self._marks: dict[Partition, int] = {}
        self._replacements = 0
        self._placements: dict[str, Placement] = {}
        self._groups: dict[str, str] = {}

    def __str__(self) -> str:
        return "memory:"

    @property
    def store_id(self) -> str:
        return self._store_id

    def secret(self) -> bytes:
        return self._secret

    def kept_secret(self) -> bytes | None:
        return self._secret

    def claim(self, model: str) -> Claim:
        with self._changed:
            state = self._models.setdefault(model, MemoryModel(self._changed))
            state.owner = next_epoch(state.owner)
            for age, (saved, data) in enumerate(state.checkpoints):
                checkpoint = read_checkpoint(model, data, str(self))
                if checkpoint:
                    state.damaged = age
                    return Claim(state.owner, checkpoint, fell_back=saved != state.saved_last)
            if state.checkpoints:
                error = none_valid(model, str(self))
                error.epoch = state.owner
                raise error
            return Claim(state.owner, None)

    def claim_all(self, models: Sequence[str]) -> list[Claim | CorruptError | StoreLost]:
        return one_by_one(self.claim, ((model,) for model in models))

    def positions(self, models: Sequence[str]) -> dict[str, ModelPosition]:
        """The positions of the newest checkpoints."""
        with self._changed:
            present = [(model, self._models[model]) for model in models if model in self._models]
            return {
                model: stored.checkpoints[stored.damaged][0].position for model, stored in present if stored.checkpoints
            }

    def peek(self, model: str) -> Checkpoint | None:
        with self._changed:
            checkpoints = list(self._models[model].checkpoints) if model in self._models else []
        sound = (read_checkpoint(model, data, str(self), quiet=True) for _, data in checkpoints)
        return next((checkpoint for checkpoint in sound if checkpoint), None)

    def fell_back(self, model: str) -> bool:
        """Whether the checkpoint that can be claimed is not the one saved last."""
        with self._changed:
            state = self._models.get(model)
            if state is None or not state.checkpoints:
                return False
            return state.checkpoints[state.damaged][0] != state.saved_last

    def save(
        self, checkpoint: Checkpoint, epoch: str, back: bool = False, placement: Placement | None = None
    ) -> Written:
        """Keep this checkpoint and the one before it."""
        data = checkpoint.to_bytes()
        saved = Saved.of(checkpoint, data)
        with self._changed:
            if self.required_owner(checkpoint.model) != epoch:
                return Written.FENCED
            if placed_elsewhere(placement, self._placements.get(checkpoint.home[0])):
                return Written.MOVED
            state = self._models[checkpoint.model]
            sound = state.checkpoints[state.damaged :]
            outcome = saved.replaces(sound[0][0] if sound else None, back)
            if outcome is Written.STORED:
                state.checkpoints, state.damaged = [(saved, data), *sound[:1]], 0
                state.saved_last = saved
            return outcome

    def replace(self, checkpoint: Checkpoint, epoch: str, reread: int, placement: Placement | None = None) -> Written:
        home = Partition(*checkpoint.home)
        with self._changed:
            written = self.save(checkpoint, epoch, back=True, placement=placement)
            if written in (Written.STORED, Written.ALREADY):
                self._replacements += 1
                if self._marks.get(home, 0) > reread:
                    self._marks[home] = reread
            return written

    def save_all(
        self, saves: Sequence[tuple[Checkpoint, str]], placement: Placement | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        return one_by_one(self.save, ((*save, False, placement) for save in saves))

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset below which everything is in checkpoints; the run is the store's id."""
        with self._changed:
            offsets = {partition: self._marks[partition] for partition in partitions if partition in self._marks}
            return Marks(offsets, self.store_id, self._replacements)

    def move_mark(self, partition: Partition, before: int | None, offset: int, replacements: int | None = None) -> bool:
        """Set a mark, if it is as expected."""
        with self._changed:
            as_expected = self._marks.get(partition) in (before, offset)
            as_expected = as_expected and replacements in (None, self._replacements)
            if as_expected:
                self._marks[partition] = offset
                self._replacements += replacements is None
            return as_expected

    def placement(self, topic_id: str) -> Placement | None:
        """The placement of a log's models; None before the first worker recorded it."""
        return self._placements.get(topic_id)

    def place(self, topic_id: str, before: Placement | None, after: Placement) -> bool:
        """Record a placement, if it is as expected."""
        with self._changed:
            as_expected = self._placements.get(topic_id) in (before, after)
            if as_expected:
                self._placements[topic_id] = after
            return as_expected

    def group(self, topic_id: str) -> str:
        """The group that reads a log."""
        return self._groups.get(topic_id, "")

    def note_group(self, topic_id: str, group: str) -> None:
        """Record the group that reads a log."""
        self._groups[topic_id] = group

    def models(self) -> list[str]:
        return sorted(self._models)

    def delete(self, model: str) -> None:
        with self._changed:
            self._models.pop(model, None)
            self._changed.notify_all()

    def drop_earlier_checkpoints(self, model: str) -> None:
        """Drop all checkpoints but the newest."""
        with self._changed:
            state = self._models[model]
            state.checkpoints, state.damaged = state.checkpoints[state.damaged :][:1], 0

    def watch(self, models: Iterable[str]) -> Watch:
        """A wait that ends as soon as a history grows."""
        return MemoryWatch(self, self._changed, models)

    def owner(self, model: str) -> str | None:
        """The epoch that owns the model."""
        state = self._models.get(model)
        return state.owner if state else None

    def journal(self, model: str) -> MemoryModel:
        """The model's journal; an empty one, which is not stored, if the model is unknown."""
        return self._models.get(model) or MemoryModel(self._changed)


class MemoryWatch:
    """Compares the ends of histories whenever something was written."""

    def __init__(self, store: MemoryStore, changed: threading.Condition, models: Iterable[str]) -> None:
        self._store, self._changed = store, changed
        self._seen = {model: store.journal(model).last() for model in models}
        self._closed = False

    def wait(self, timeout_s: float) -> set[str]:
        """Wait until the histories of some models grew, and return these models."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._moved(), timeout_s)
            moved = self._moved()
            self._seen.update((model, self._store.journal(model).last()) for model in moved)
            return moved

    def close(self) -> None:
        """End a wait of another thread at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _moved(self) -> set[str]:
        return {model for model, last in self._seen.items() if last != self._store.journal(model).last()}
