"""What a database must offer to be a store: rows in groups, and transactions over them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Protocol


class Rows(Protocol):
    """The rows of a database, within one transaction: each has a group, a name in it, and bytes.

    Groups and names are printable ASCII, and together shorter than 300 characters. Values are from a few bytes to many
    megabytes long. A group is there as soon as it has a row.
    """

    def get(self, group: str, name: str) -> bytes | None:
        """The value of a row; None if there is no such row."""

    def put(self, group: str, name: str, value: bytes) -> None:
        """Write a row, in place of the one of that name if there is one."""

    def delete(self, group: str, name: str) -> None:
        """Remove a row, if it is there."""

    def names(self, group: str) -> list[str]:
        """The names of the rows of a group, in any order."""


class Database(ABC):
    """A database for :class:`omdml.streams.stores.transactional.store.TransactionalStore`; any thread may use it.

    One process may have two objects for the same data, and use both at once.

    Attributes
    ----------
    kind
        What ``omdml status`` calls the store.
    durable
        Whether what was acknowledged survives a loss of power; None if the database cannot tell.
    """

    kind: str
    durable: bool | None

    @abstractmethod
    def __str__(self) -> str:
        """The store's address in messages, without passwords."""

    @abstractmethod
    def transaction(self, write: bool) -> AbstractContextManager[Rows]:
        """A transaction, which ends with the context; no thread begins one within another.

        It is serializable: two that write come one after the other, whichever processes they belong to, and one that
        only reads sees nothing of one that has not ended. It may wait for another one for some seconds. If that has not
        ended by then, it raises StoreError, and its caller tries again. Before the first write there are no rows, which
        is no error. What a transaction wrote is durable when it has ended. If an exception comes, all of it is undone.
        Every error of the database, also at the beginning or end of a transaction, is raised as a StoreError that says
        what to do.
        """

    @abstractmethod
    def run(self) -> str:
        """A text that changes when the database may have forgotten what it acknowledged.

        So it changes when the database is restored from a copy, or another server takes over. It is asked for within a
        transaction. Raises StoreError if the database cannot be asked.
        """
