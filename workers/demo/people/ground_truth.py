"""What simulated people know of the items, whatever it is that they are asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Truth(Protocol):
    """Which answers truly fit a query."""

    @property
    def task(self) -> str | None:
        """Sense of similar, if the model learns several; None if there is one."""

    @property
    def queries(self) -> Sequence[str]:
        """Items that people search for; each has open answers that fit and open ones that do not."""

    @property
    def held_out(self) -> Sequence[str]:
        """Items kept back to measure with: nobody searches for them or marks them."""

    @property
    def answers(self) -> int:
        """How many ids the full answer to a held-out query holds."""

    def fits(self, query: str, found: str) -> bool:
        """Whether ``found`` is what somebody who searches for ``query`` is after; nothing unknown is."""

    def is_open(self, found: str) -> bool:
        """Whether people may mark it: it is known, and not held out."""

    def among(self, query: str, fitting: bool) -> Sequence[str]:
        """Open ids among which there are some that fit, or some that do not."""
