"""What simulated people know about the items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Truth(Protocol):
    """Which answers truly fit a query."""

    @property
    def task(self) -> str | None:
        """The sense of similar, if the model learns several; None if it learns only one."""

    @property
    def queries(self) -> Sequence[str]:
        """Items that people search for. For each of them some open answers fit, and some do not."""

    @property
    def held_out(self) -> Sequence[str]:
        """Items that are kept back for measuring: nobody searches for them or marks them."""

    @property
    def answers(self) -> int:
        """How many ids are in the full answer to a test query."""

    def fits(self, query: str, answer: str) -> bool:
        """Whether ``answer`` fits the query. An id that is not known fits nothing."""

    def is_open(self, answer: str) -> bool:
        """Whether people may mark this id: it is known, and not held out."""

    def among(self, query: str, fitting: bool) -> Sequence[str]:
        """Open ids, of which at least some fit the query (or do not fit, if ``fitting`` is False)."""
