"""The models in memory, kept within a budget of bytes: the least recently used ones are dropped first."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

import structlog

log = structlog.get_logger(__name__)


class MemoryBudget:
    """How much memory each model takes, in the order of their last use.

    Parameters
    ----------
    limit
        Bytes, of all models together. The model that is in use stays, whatever it takes.
    """

    def __init__(self, limit: float = math.inf) -> None:
        self.limit = limit
        self.total = 0
        self.evictions = 0
        # The model that was not used for longest is first.
        self._sizes: OrderedDict[str, int] = OrderedDict()
        self._drop: dict[str, Callable[[str], None]] = {}

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    def use(self, name: str, size: int, drop: Callable[[str], None]) -> None:
        """Note that a model is used now, and how many bytes it takes. ``drop`` saves it, then calls :meth:`forget`."""
        self.forget(name)
        self._sizes[name], self._drop[name] = size, drop
        self.total += size

    def make_room(self) -> None:
        """Drop the models that were not used for longest, until the others fit. Raises what saving raises."""
        while self.total > self.limit and len(self._sizes) > 1:
            name = next(iter(self._sizes))
            self._drop[name](name)
            self.evictions += 1
            log.debug("model_dropped", model=name, bytes_in_memory=self.total)

    def forget(self, name: str) -> None:
        """Note that a model is no longer in memory."""
        self.total -= self._sizes.pop(name, 0)
        self._drop.pop(name, None)
