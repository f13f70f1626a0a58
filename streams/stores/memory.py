"""A store in memory, for replays, embedding and tests: what it holds ends with the process."""

from __future__ import annotations

import threading
from typing import Self

from omdml.streams.stores.retention import RETENTION, RetentionOf
from omdml.streams.stores.transactional.database import Database
from omdml.streams.stores.transactional.store import STORE, TransactionalStore


class MemoryDatabase(Database):
    """Dictionaries of rows by group, for one transaction at a time."""

    kind, durable = "memory of one process", False

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, bytes]] = {}
        self.turn = threading.Lock()

    def __str__(self) -> str:
        return "memory:"

    def transaction(self, write: bool) -> MemoryTransaction:
        return MemoryTransaction(self)

    def run(self) -> str:
        return "this process"


class MemoryTransaction:
    """The rows during one transaction, and what they were before it."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._groups, self._turn = database.groups, database.turn
        self._before: list[tuple[str, str, bytes | None]] = []

    def __enter__(self) -> Self:
        self._turn.acquire()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for group, name, value in self._before[::-1] if error else ():
            self.delete(group, name) if value is None else self.put(group, name, value)
        self._turn.release()

    def get(self, group: str, name: str) -> bytes | None:
        return self._groups.get(group, {}).get(name)

    def put(self, group: str, name: str, value: bytes) -> None:
        self._before.append((group, name, self.get(group, name)))
        self._groups.setdefault(group, {})[name] = value

    def delete(self, group: str, name: str) -> None:
        if (value := self.get(group, name)) is not None:
            self._before.append((group, name, value))
            del self._groups[group][name]
            if not self._groups[group]:
                del self._groups[group]

    def names(self, group: str) -> list[str]:
        return list(self._groups.get(group, ()))


class MemoryStore(TransactionalStore):
    """A store over a database of its own in memory.

    Parameters
    ----------
    retention
        Which snapshots stay when new ones come.
    secret
        Random if None.
    """

    database: MemoryDatabase

    def __init__(self, retention: RetentionOf = RETENTION, secret: bytes | None = None) -> None:
        super().__init__(MemoryDatabase(), retention)
        if secret:
            with self._transaction(True) as rows:
                rows.put(STORE, "secret", secret.hex().encode())
