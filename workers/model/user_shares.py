"""How much of what a model learns may come from one user.

A model remembers who sent the newest events that it took, and how many comparisons each stood for: together at most
``WINDOW`` comparisons. An event is refused if its user would have more than a share of the window. The window follows
from the log alone and lies in the checkpoint, so that a replay refuses the same events.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CorruptError, FeedbackError
from omdml.feedback import kind_of
from omdml.workers.events.decoding import Refusal
from omdml.workers.events.lookup import Located

# The most comparisons of a window.
WINDOW = 4096
USER_BYTES = 8
# One event: eight bytes of the user's hash, and the comparisons that the event stands for.
ENTRY = np.dtype([("user", "<u8"), ("comparisons", "<u2")])

Array = NDArray[Any]


class UserShares:
    """The users of the newest events of one model.

    Events that name no user are neither limited nor remembered.

    Parameters
    ----------
    share
        The largest share of the window's comparisons that one user may have, above 0. 1 is no limit, and remembers
        nothing.
    data
        What :meth:`to_bytes` made; raises CorruptError for anything else.
    """

    def __init__(self, share: float = 1.0, data: bytes = b"") -> None:
        if len(data) % ENTRY.itemsize or len(data) > WINDOW * ENTRY.itemsize:
            raise CorruptError(
                f"users of the newest events: {len(data)} bytes, expected a multiple of {ENTRY.itemsize}, at most "
                f"{WINDOW * ENTRY.itemsize}"
            )
        self.limited = share < 1
        self.limit = max(1, int(share * WINDOW))
        self._events: deque[tuple[int, int]] = deque()
        self._comparisons: Counter[int] = Counter()
        self._total = 0
        if self.limited:
            for user, comparisons in np.frombuffer(data, ENTRY).tolist():
                self._remember(user, comparisons)

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the shares take, roughly."""
        # A tuple of two numbers, and a place in the deque; a counter's entry takes about as much.
        return 160 * len(self._events)

    @property
    def figures(self) -> dict[str, float]:
        """How many users the window holds, and the share that the largest of them has; empty if there is no limit."""
        if not self.limited:
            return {}
        largest = max(self._comparisons.values(), default=0)
        return {"users": len(self._comparisons), "largest_share_of_a_user": largest / WINDOW}

    def to_bytes(self) -> bytes:
        """The window as a checkpoint keeps it, the oldest event first."""
        return np.array(list(self._events), ENTRY).tobytes()

    def split(self, located: Located, model: str) -> tuple[Located, list[Refusal]]:
        """The events of a model that may be learned, and those whose users have sent too much."""
        if not self.limited:
            return located, []
        records, events = located.events.records, located.events.events
        errors = self.take([event.user for event in events], np.diff(located.ends, prepend=0))
        if not errors:
            return located, []
        refused = [Refusal.of(records[n], error, model, kind_of(events[n])) for n, error in errors.items()]
        return located.without(errors.keys()), refused

    def take(self, users: Sequence[str | None], comparisons: Array) -> dict[int, FeedbackError]:
        """Take events in order; returns those that must not be learned, by their number.

        Parameters
        ----------
        users
            Whose event each is, None if it does not say.
        comparisons
            How many comparisons each stands for.
        """
        refused: dict[int, FeedbackError] = {}
        if not self.limited:
            return refused
        for number, (name, count) in enumerate(zip(users, comparisons.tolist(), strict=True)):
            if name is None:
                continue
            user = hash_of(name)
            if not self._has_room(user, count):
                refused[number] = self._refusal(count)
            else:
                self._remember(user, count)
        return refused

    def _has_room(self, user: int, count: int) -> bool:
        """Whether a user may have this many more comparisons, once the oldest events have made room for them."""
        user_total = self._comparisons.get(user, 0) + count
        if user_total <= self.limit:
            return True
        if count > self.limit:
            return False
        excess = self._total + count - WINDOW
        for owner, comparisons in self._events:
            if excess <= 0:
                return False
            excess -= comparisons
            if owner == user:
                user_total -= comparisons
                if user_total <= self.limit:
                    return True
        return False

    def _remember(self, user: int, count: int) -> None:
        self._events.append((user, count))
        self._comparisons[user] += count
        self._total += count
        while self._total > WINDOW:
            owner, comparisons = self._events.popleft()
            self._total -= comparisons
            self._comparisons[owner] -= comparisons
            if not self._comparisons[owner]:
                del self._comparisons[owner]

    def _refusal(self, count: int) -> FeedbackError:
        return FeedbackError(
            f"an event of {count} comparisons: with it, its user would have more than {self.limit} of the newest "
            f"{WINDOW:,} comparisons that name a user, and max_share_a_user allows no more. Send it again once others "
            "have sent more, or raise max_share_a_user",
            reason="user_share",
        )


def hash_of(user: str) -> int:
    """Eight bytes of the blake2b of a user's name."""
    return int.from_bytes(blake2b(user.encode(), digest_size=USER_BYTES).digest(), "little")
