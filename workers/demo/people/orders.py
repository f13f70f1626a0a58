"""What people know who compare by more and less: how much of an attribute each item has."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from omdml.errors import ConfigurationError
from omdml.workers.demo.people.labels import HELD_OUT, HELD_OUT_SHARE


class Order:
    """Items in the order of an attribute. An item fits a query if it has more of the attribute.

    Parameters
    ----------
    amounts
        The amount of the attribute of each item id.
    seed
        Chooses the held-out items: about 200, at most an eighth of all.

    Raises
    ------
    ConfigurationError
        There are fewer than four different amounts.
    """

    task = None

    def __init__(self, amounts: Mapping[str, float], seed: int) -> None:
        self.amounts = amounts
        least, most = min(amounts.values(), default=0.0), max(amounts.values(), default=0.0)
        inner = [item for item, amount in amounts.items() if least < amount < most]
        if len({amounts[item] for item in inner}) < 2:
            raise ConfigurationError(
                f"amounts: got {len(set(amounts.values()))} different amounts, expected at least 4: people need items "
                "with more and with less than what they search for"
            )
        count = max(1, round(min(HELD_OUT, HELD_OUT_SHARE * len(amounts))))
        self.held_out = random.Random(seed).sample(inner, min(count, len(inner) - 1))
        self._hidden = frozenset(self.held_out)
        self._rising = sorted((item for item in amounts if item not in self._hidden), key=amounts.__getitem__)
        self._sizes = [amounts[item] for item in self._rising]
        self.queries = [item for item in inner if item not in self._hidden]

    @property
    def answers(self) -> int:
        """The number of items except the query."""
        return len(self.amounts) - 1

    def fits(self, query: str, answer: str) -> bool:
        """Whether the item ``answer`` has more of the attribute than the query."""
        return answer in self.amounts and self.amounts[answer] > self.amounts[query]

    def is_open(self, answer: str) -> bool:
        """Whether the amount of this item is known, and it is not held out."""
        return answer in self.amounts and answer not in self._hidden

    def among(self, query: str, fitting: bool) -> Sequence[str]:
        """Open items with more of the attribute, or with less."""
        if fitting:
            return self._rising[bisect_right(self._sizes, self.amounts[query]) :]
        return self._rising[: bisect_left(self._sizes, self.amounts[query])]
