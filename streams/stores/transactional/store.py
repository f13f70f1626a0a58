"""A whole Store over a database with transactions: every call is one transaction."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from urllib.parse import quote, unquote

from omdml.errors import CorruptError, StoreError, StoreLost
from omdml.formats import TRANSACTIONAL_STORE
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.placement import Assumed, Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import NOBODY, Claim, Marks, ModelPosition, Pointer, Watch, Why, Written
from omdml.streams.stores.checkpoints import (
    Saved,
    new_secret,
    next_epoch,
    none_left,
    none_valid,
    placed_elsewhere,
    read_checkpoint,
    read_secret,
    store_lost,
)
from omdml.streams.stores.journaled import JournaledSnapshots
from omdml.streams.stores.many import one_by_one
from omdml.streams.stores.retention import RETENTION, RetentionOf
from omdml.streams.stores.transactional.database import Database, Rows
from omdml.streams.stores.transactional.journal import PollingWatch, RowJournal
from omdml.streams.stores.transactional.model_row import GROUP, KeptCheckpoint, ModelRow, read_row

# The groups that do not belong to a model.
STORE, MARKS, PLACEMENTS, READERS = "store", "marks", "placements", "readers"
FORMAT = b"%d" % TRANSACTIONAL_STORE.number


class TransactionalStore(JournaledSnapshots):
    """A Store (see streams/protocols/store.py); any number of threads may use it.

    Parameters
    ----------
    database
        Where its rows lie.
    retention
        Which snapshots stay when new ones come.
    """

    def __init__(self, database: Database, retention: RetentionOf = RETENTION) -> None:
        super().__init__(retention)
        self.database = database
        self._thread = threading.local()

    def __str__(self) -> str:
        return str(self.database)

    @property
    def store_id(self) -> str:
        return (self._get(STORE, "id") or b"").decode()

    def secret(self) -> bytes:
        with self._transaction(True) as rows:
            secret = rows.get(STORE, "secret")
            if secret is None:
                rows.put(STORE, "secret", secret := new_secret())
            return read_secret(secret, str(self))

    def kept_secret(self) -> bytes | None:
        secret = self._get(STORE, "secret")
        return None if secret is None else read_secret(secret, str(self))

    def claim(self, model: str) -> Claim:
        with self._transaction(True) as rows:
            row = ModelRow.read(rows, model) or ModelRow("")
            row.owner = next_epoch(row.owner or None)
            kept, claimed = self._kept(rows, model, row), None
            for age, (number, saved, _) in enumerate(kept):
                if checkpoint := self._checkpoint(rows, model, number):
                    claimed = Claim(row.owner, checkpoint, fell_back=saved != row.saved_last)
                    break
                kept[age] = KeptCheckpoint(number, saved, damaged=True)
            row.checkpoints = kept
            row.write(rows, model)
        if claimed or not (kept or row.saved_last):
            return claimed or Claim(row.owner, None)
        # The error is raised only now, because within the transaction it would undo the claim.
        error = (none_valid if kept else none_left)(model, str(self))
        error.epoch = row.owner
        raise error

    def claim_all(self, models: Sequence[str]) -> list[Claim | CorruptError | StoreLost]:
        with self._transaction(True):
            return one_by_one(self.claim, ((model,) for model in models))

    def positions(self, models: Sequence[str]) -> dict[str, ModelPosition]:
        """The positions of the newest checkpoints."""
        positions = {}
        with self._transaction(False) as rows:
            for model in models:
                row = ModelRow.read(rows, model)
                if row and (kept := self._kept(rows, model, row)):
                    positions[model] = next((file for file in kept if not file.damaged), kept[0]).saved.position
        return positions

    def peek(self, model: str) -> Checkpoint | None:
        with self._transaction(False) as rows:
            row = ModelRow.read(rows, model)
            kept = self._kept(rows, model, row) if row else []
            sound = (self._checkpoint(rows, model, file.number, quiet=True) for file in kept)
            return next((checkpoint for checkpoint in sound if checkpoint), None)

    def fell_back(self, model: str) -> bool:
        """Whether the checkpoint that can be claimed is not the one saved last."""
        with self._transaction(False) as rows:
            row = ModelRow.read(rows, model)
            if row is None:
                return False
            sound = [file.saved for file in self._kept(rows, model, row) if not file.damaged]
            return (sound[0] if sound else None) != row.saved_last

    def save(
        self, checkpoint: Checkpoint, epoch: str, back: bool = False, placement: Placement | None = None
    ) -> Written:
        """Keep this checkpoint and the one before it."""
        model, data = checkpoint.model, checkpoint.to_bytes()
        saved = Saved.of(checkpoint, data)
        with self._transaction(True) as rows:
            row = ModelRow.read(rows, model)
            if row is None:
                raise store_lost(model, str(self))
            if row.owner != epoch:
                return Written.FENCED
            if placement and placed_elsewhere(placement, self.placement(checkpoint.home[0])):
                return Written.MOVED
            sound = [file for file in self._kept(rows, model, row) if not file.damaged]
            outcome = saved.replaces(sound[0].saved if sound else None, back)
            if outcome is Written.STORED:
                number = max((file.number for file in row.checkpoints), default=0) + 1
                rows.put(group_of(model), str(number), data)
                row.saved_last = saved
                self._keep(rows, model, row, [KeptCheckpoint(number, saved), *sound[:1]])
            return outcome

    def replace(self, checkpoint: Checkpoint, epoch: str, reread: int, placement: Placement | None = None) -> Written:
        home = Partition(*checkpoint.home)
        with self._transaction(True) as rows:
            written = self.save(checkpoint, epoch, back=True, placement=placement)
            if written in (Written.STORED, Written.ALREADY):
                self._count_replacement(rows)
                mark = number_in(rows, MARKS, name_of(home))
                if mark is not None and mark > reread:
                    rows.put(MARKS, name_of(home), b"%d" % reread)
            return written

    def save_all(
        self, saves: Sequence[tuple[Checkpoint, str]], placement: Placement | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        with self._transaction(True):
            return one_by_one(self.save, ((*save, False, placement) for save in saves))

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset below which everything is in checkpoints; the run is the store's id and the database's run."""
        with self._transaction(False) as rows:
            offsets = {partition: number_in(rows, MARKS, name_of(partition)) for partition in partitions}
            known = {partition: offset for partition, offset in offsets.items() if offset is not None}
            run = f"{self.store_id} {self.database.run()}" if self.store_id else ""
            return Marks(known, run, number_in(rows, STORE, "replacements") or 0)

    def move_mark(self, partition: Partition, before: int | None, offset: int, replacements: int | None = None) -> bool:
        """Set a mark, if it is as expected."""
        with self._transaction(True) as rows:
            as_expected = number_in(rows, MARKS, name_of(partition)) in (before, offset)
            as_expected = as_expected and replacements in (None, number_in(rows, STORE, "replacements") or 0)
            if as_expected:
                rows.put(MARKS, name_of(partition), b"%d" % offset)
                if replacements is None:
                    self._count_replacement(rows)
            return as_expected

    def placement(self, topic_id: str) -> Placement | None:
        """The placement of a log's models; None before the first worker recorded it."""
        data = self._get(PLACEMENTS, quote(topic_id, ""))
        return None if data is None else Placement.decode(data, f"{self}, log {topic_id}")

    def place(self, topic_id: str, before: Placement | None, after: Placement) -> bool:
        """Record a placement, if it is as expected."""
        with self._transaction(True) as rows:
            as_expected = self.placement(topic_id) in (before, after)
            if as_expected:
                rows.put(PLACEMENTS, quote(topic_id, ""), after.encode())
            return as_expected

    def group(self, topic_id: str) -> str:
        """The group that reads a log."""
        return (self._get(READERS, quote(topic_id, "")) or b"").decode()

    def note_group(self, topic_id: str, group: str) -> None:
        """Record the group that reads a log."""
        with self._transaction(True) as rows:
            rows.put(READERS, quote(topic_id, ""), group.encode())

    def models(self) -> list[str]:
        with self._transaction(False) as rows:
            return sorted(map(unquote, rows.names(GROUP)))

    def delete(self, model: str) -> None:
        with self._transaction(True) as rows:
            self._keep(rows, model, ModelRow(""), [])
            rows.delete(GROUP, quote(model, ""))
            self.journal(model).drop()

    def publish(self, snapshot: Snapshot, epoch: str, withheld: str = "", assumed: Assumed | None = None) -> Written:
        """Keep the snapshot, and make it live."""
        with self._transaction(True):
            return super().publish(snapshot, epoch, withheld, assumed)

    def publish_all(
        self, publications: Sequence[tuple[Snapshot, str, str]], assumed: Assumed | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        """Keep each of these, and make it live."""
        with self._transaction(True):
            return super().publish_all(publications, assumed)

    def current_all(self, models: Sequence[str]) -> list[Pointer | None]:
        """The live pointers of these models."""
        with self._transaction(False):
            return super().current_all(models)

    def note(self, model: str, epoch: str, what: str, reason: str) -> Written:
        """Add a remark about the live snapshot to the history."""
        with self._transaction(True):
            return super().note(model, epoch, what, reason)

    def move(self, model: str, version: int | None, pin: bool, why: Why = NOBODY) -> Pointer:
        with self._transaction(True):
            return super().move(model, version, pin, why)

    def drop_earlier(self, snapshot: Snapshot, epoch: str) -> Written:
        """Keep only the newest checkpoint, and this snapshot with its entry."""
        with self._transaction(True):
            return super().drop_earlier(snapshot, epoch)

    def drop_earlier_checkpoints(self, model: str) -> None:
        """Drop all checkpoints but the newest."""
        with self._transaction(True) as rows:
            if row := ModelRow.read(rows, model):
                self._keep(rows, model, row, [file for file in row.checkpoints if not file.damaged][:1])

    def watch(self, models: Iterable[str]) -> Watch:
        """A look at the count of changes every few milliseconds."""
        return PollingWatch(self._transaction, models)

    def owner(self, model: str) -> str | None:
        """The epoch that owns the model."""
        with self._transaction(False) as rows:
            row = ModelRow.read(rows, model)
            return row.owner if row else None

    def journal(self, model: str) -> RowJournal:
        """The model's journal; empty if nothing was published."""
        return RowJournal(self._transaction, model)

    def _transaction(self, write: bool) -> AbstractContextManager[Rows]:
        """Begin a transaction, or join the one that this thread is in; one that writes joins none that only reads."""
        rows: Rows | None = getattr(self._thread, "rows", None)
        if rows is None:
            return self._new_transaction(write)
        if write and not self._thread.writes:
            raise RuntimeError(f"store {self}: a transaction that only reads cannot write; begin it with True")
        return nullcontext(rows)

    @contextmanager
    def _new_transaction(self, write: bool) -> Iterator[Rows]:
        with self.database.transaction(write) as rows:
            written = rows.get(STORE, "format")
            if written is None and write:
                rows.put(STORE, "format", FORMAT)
                rows.put(STORE, "id", uuid.uuid4().hex.encode())
            elif written not in (None, FORMAT):
                TRANSACTIONAL_STORE.check(number_in(rows, STORE, "format"), f"store {self}", StoreError)
            self._thread.rows, self._thread.writes = rows, write
            try:
                yield rows
            finally:
                self._thread.rows = None

    def _get(self, group: str, name: str) -> bytes | None:
        with self._transaction(False) as rows:
            return rows.get(group, name)

    def _kept(self, rows: Rows, model: str, row: ModelRow) -> list[KeptCheckpoint]:
        """The checkpoints whose bytes are there: another program may have removed some."""
        names = rows.names(group_of(model)) if row.checkpoints else []
        return [file for file in row.checkpoints if str(file.number) in names]

    def _checkpoint(self, rows: Rows, model: str, number: int, quiet: bool = False) -> Checkpoint | None:
        data = rows.get(group_of(model), str(number)) or b""
        return read_checkpoint(model, data, str(self), quiet)

    def _keep(self, rows: Rows, model: str, row: ModelRow, checkpoints: list[KeptCheckpoint]) -> None:
        """Note which checkpoints are kept, and drop the bytes of all others."""
        row.checkpoints = checkpoints
        row.write(rows, model)
        for name in set(rows.names(group_of(model))) - {str(file.number) for file in checkpoints}:
            rows.delete(group_of(model), name)

    def _count_replacement(self, rows: Rows) -> None:
        rows.put(STORE, "replacements", b"%d" % ((number_in(rows, STORE, "replacements") or 0) + 1))


def group_of(model: str) -> str:
    """The group of a model's checkpoints."""
    return f"checkpoints/{quote(model, '')}"


def name_of(partition: Partition) -> str:
    """The name of a partition's mark."""
    return f"{quote(partition.topic_id, '')}/{partition.number}"


def number_in(rows: Rows, group: str, name: str) -> int | None:
    """The number in a row; None if there is no such row."""
    return read_row(rows, group, name, int)
