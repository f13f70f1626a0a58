"""A limit of bytes or models a second, of which unused seconds are saved up."""

from __future__ import annotations

import math


class Allowance:
    """A rate limit that saves up what was not used: bytes of checkpoints, or new models.

    Parameters
    ----------
    rate
        Units a second.
    burst_s
        Seconds that may be saved up.
    """

    def __init__(self, rate: float = math.inf, burst_s: float = 1.0) -> None:
        self.rate, self.burst = rate, rate * burst_s
        self.left = self.burst
        self._grown_at = -math.inf

    def grow(self, now: float) -> None:
        """Let the allowance grow until ``now``, in seconds of any clock."""
        self.left = min(self.burst, self.left + self.rate * max(0.0, now - self._grown_at))
        self._grown_at = now

    def spend(self, size: int) -> None:
        """Take what was used off the allowance. It may become negative, which delays what comes later."""
        self.left -= size
