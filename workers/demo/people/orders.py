"""What people know who compare by more and less: how much of one attribute every item has."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from omdml.errors import ConfigurationError
from omdml.workers.demo.people.labels import HELD_OUT, HELD_OUT_SHARE


class Order:
    """Items in the order of an attribute: who searches for one wants what has more of it.

    Parameters
    ----------
    amounts
        Of the attribute, by item id.
    seed
        Of the choice of held-out items: about 200, at most an eighth of all.

    Raises
    ------
    ConfigurationError
        Fewer than four different amounts.
    """

    task = None

    def __init__(self, amounts: Mapping[str, float], seed: int) -> None:
        self.amounts = amounts
        least, most = min(amounts.values(), default=0.0), max(amounts.values(), default=0.0)
        inner = [item for item, amount in amounts.items() if least < amount < most]
        if len({amounts[item] for item in inner}) < 2:
            raise ConfigurationError(
                f"amounts: {len(set(amounts.values()))} different ones, expected at least 4: people need items with "
                "more and with less than what they search for"
            )
        count = max(1, round(min(HELD_OUT, HELD_OUT_SHARE * len(amounts))))
        self.held_out = random.Random(seed).sample(inner, min(count, len(inner) - 1))
        self._hidden = frozenset(self.held_out)
        self._rising = sorted((item for item in amounts if item not in self._hidden), key=amounts.__getitem__)
        self._sizes = [amounts[item] for item in self._rising]
        self.queries = [item for item in inner if item not in self._hidden]

    @property
    def answers(self) -> int:
        """Every item except the query may answer it."""
        return len(self.amounts) - 1

    def fits(self, query: str, found: str) -> bool:
        """Whether it has more of the attribute."""
        return found in self.amounts and self.amounts[found] > self.amounts[query]

    def is_open(self, found: str) -> bool:
        """Whether its amount is known, and it is not held out."""
        return found in self.amounts and found not in self._hidden

    def among(self, query: str, fitting: bool) -> Sequence[str]:
        """Open items with more of the attribute, or with less."""
        if fitting:
            return self._rising[bisect_right(self._sizes, self.amounts[query]) :]
        return self._rising[: bisect_left(self._sizes, self.amounts[query])]
