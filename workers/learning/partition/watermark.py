"""Steps 1, 7 and 8 of the protocol: the mark of a partition, below which everything is in checkpoints."""

from __future__ import annotations

from collections.abc import Callable

from omdml.errors import StoreLost
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Marks, MarkStore
from omdml.workers.learning.interruptions import ModelReplaced, Rewind, StoreChanged


class Mark:
    """A partition's mark as its owner left it, and the run that the store had then.

    Attributes
    ----------
    offset
        The mark when it was last looked at: everything below it is in checkpoints. None if there was none.
    taken
        The offset after the last record that was taken here; None before the first.
    verified
        Where this owner began to read, then each mark that it moved and found again. Everything below it is in
        checkpoints even if the store has changed since.
    """

    def __init__(self, partition: Partition, store: MarkStore) -> None:
        self.offset: int | None = None
        self.taken: int | None = None
        self.verified: int | None = None
        self._partition, self._store = partition, store
        self._run, self._replacements = "", 0

    def start(self, committed: int | None, begin: Callable[[Partition], int]) -> int | None:
        """Where to read from: min(mark, commit), or the mark alone; None is the beginning of the log.

        If the log does not hold the commit any more, its ``begin`` takes the place of the commit: below the mark
        everything is in checkpoints, so what the log deleted there is no gap.

        Raises StoreLost for a commit without a mark: the store was lost, and learning again would be silent.
        """
        marks = self._store.marks([self._partition])
        mark = marks.get(self._partition)
        if mark is None and committed is not None:
            raise StoreLost(
                f"partition {self._partition} was read up to offset {committed}, but the store knows nothing of it: "
                "the store was emptied, or is another one. Correct store.url, or restore the store. Or learn again: "
                "omdml topics rewind. If the log is in files: take an empty store and another log.group"
            )
        self.offset, self._run, self._replacements = mark, marks.run, marks.replacements
        self.verified = mark
        if mark is not None and committed is not None and mark > committed:
            self.verified = min(mark, max(committed, begin(self._partition)))
        return self.verified

    def rewind(self, model: str, begin: int, why: str) -> Rewind:
        """Move the mark back, so that the partition is read again from an offset on; returns the Rewind to raise.

        The mark moves first, so that a crash at any later step reads the events again. This never moves forward,
        because another model may have gone further back.
        """
        begin = begin if self.taken is None else min(begin, self.taken)
        self.go_back(begin)
        self.taken = begin
        return Rewind(model, self._partition, begin, why)

    def go_back(self, offset: int) -> None:
        """Move the mark back to this offset if it is further on. Raises as :meth:`move` does.

        Call this before a model that goes on from this offset is saved. Once its new checkpoint is there, nothing else
        shows that it lacks the events between the offset and the mark.
        """
        if self.offset is not None:
            self.move(min(offset, self.offset), back=True)

    def move(self, offset: int | None, back: bool = False) -> None:
        """Move the mark if it is elsewhere, then look at it.

        Raises StoreChanged if it is not as this owner left it, and ModelReplaced if that happened from outside.

        In the same run, the mark may be further on than this owner left it: an earlier owner's last save moved it. It
        then stays there, unless it is to go ``back``. That is safe: if that save had concerned a model that this owner
        has claimed, the store would have refused the save, and the mark would not have moved.
        """
        target = self.offset if offset is None else offset
        moved = target in (None, self.offset) or self._store.move_mark(
            self._partition, self.offset, target, self._replacements
        )
        expected = target if moved else self.offset
        marks = self._store.marks([self._partition])
        stored = marks.get(self._partition)
        self._check_replacements(marks)
        if marks.run == self._run and stored is not None and (expected is None or stored > expected):
            # An earlier owner's last save moved it further on. Take that over, and move from there.
            self.offset = stored
            if target is None or not back:
                target = stored if target is None else max(stored, target)
            self.move(target, back)
            return
        if not moved or stored != target or marks.run != self._run:
            raise self._changed(stored, expected, marks.run)
        self.offset = self.verified = target

    def look(self) -> None:
        """Raise StoreChanged if the store is not as this owner left it. Without a mark that cannot be told."""
        if self.offset is not None and not self.still_stands():
            marks = self._store.marks([self._partition])
            self._check_replacements(marks)
            raise self._changed(marks.get(self._partition), self.offset, marks.run)

    def _check_replacements(self, marks: Marks) -> None:
        """Raise ModelReplaced if a model was replaced since this owner began."""
        if marks.replacements != self._replacements and marks.run == self._run:
            raise ModelReplaced(
                f"partition {self._partition}: a model in the store was replaced (replay, forget, learn-on, bootstrap)"
            )

    def _changed(self, stored: int | None, expected: int | None, run: str) -> StoreChanged:
        difference = f"the mark of the partition is {stored}, but this worker left it at {expected}"
        if run != self._run:
            difference += f"; the run of the store is {run!r}, before {self._run!r}"
        return StoreChanged(
            f"partition {self._partition}: the store changed under this worker: {difference}. The store was "
            "restarted, emptied or restored from a copy"
        )

    def lost_only_a_model(self) -> bool:
        """Whether a StoreLost about one model means that this model was deleted.

        Raises StoreChanged if the store lost more. False if there is no mark by which that can be told.
        """
        self.look()
        return self.still_stands()

    def still_stands(self) -> bool:
        """Whether the store still holds the mark as it was left, or further on, in the same run."""
        marks = self._store.marks([self._partition])
        marked = marks.get(self._partition)
        same = (marks.run, marks.replacements) == (self._run, self._replacements)
        return marked is not None and same and (self.offset is None or marked >= self.offset)
