"""Find out which of two rankings people prefer: mix both in one list, and count clicks for the ranking of the item.

Team draft interleaving (Radlinski, Kurup and Joachims, "How does clickthrough data reflect retrieval quality?", 2008).
One may look at the result of the test as often as one likes (Robbins, 1970).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

# Share of wrong verdicts among experiments with two equal rankings, even if they are watched for ever.
ALPHA = 0.05
# Bisections of an interval.
STEPS = 60


class Drafted(NamedTuple):
    """An item of an interleaved list, and its team: 0 if it came from the first ranking, 1 if from the second."""

    id: str
    team: int


def team_draft(first: Sequence[str], second: Sequence[str], k: int, key: bytes) -> list[Drafted]:
    """The first ``k`` items of two rankings, picked in turn; a coin decides who picks first in each round.

    The same rankings and ``key`` make the same list. Each ranking should have ``k`` items if that many exist.

    >>> team_draft(["a", "b", "c"], ["b", "d", "a"], 3, b"a session")
    [Drafted(id='a', team=0), Drafted(id='b', team=1), Drafted(id='c', team=0)]
    """
    rankings, next_pick, sizes = (first, second), [0, 0], [0, 0]
    drafted: dict[str, int] = {}
    toss = coins(key)
    while len(drafted) < k:
        team = next(toss) if sizes[0] == sizes[1] else int(sizes[1] < sizes[0])
        for picking in (team, 1 - team):
            ranking = rankings[picking]
            while next_pick[picking] < len(ranking) and ranking[next_pick[picking]] in drafted:
                next_pick[picking] += 1
            if next_pick[picking] < len(ranking):
                drafted[ranking[next_pick[picking]]] = picking
                sizes[picking] += 1
                break
        else:
            # Neither ranking has an item left.
            break
    return [Drafted(item, team) for item, team in drafted.items()]


def coins(key: bytes) -> Iterator[int]:
    """An endless sequence of zeros and ones, always the same for the same key."""
    block = 0
    while True:
        for byte in blake2b(key, salt=block.to_bytes(8, "big")).digest():
            yield from (byte >> bit & 1 for bit in range(8))
        block += 1


class Verdict(NamedTuple):
    """The result of comparing two rankings by wins and losses.

    Parameters
    ----------
    better
        0 if the first ranking is surely better, 1 if the second is, None if nothing is sure.
    share
        Share of the decided searches that the second ranking won, between ``low`` and ``high``; None if there are none.
    confidence
        Confidence that the rankings differ: 1 minus the chance of such evidence, at any time, for equal rankings.
    """

    better: int | None
    share: float | None
    low: float
    high: float
    confidence: float

    def named(self) -> dict[str, Any]:
        """The fields by name, with ``first`` or ``second`` for the better ranking."""
        return {**self._asdict(), "better": None if self.better is None else ("first", "second")[self.better]}


def verdict(first: int, second: int, alpha: float = ALPHA) -> Verdict:
    """Judge two rankings by the numbers of searches that each won; searches that neither won do not count.

    The evidence against "equal" is the likelihood of the outcome with a uniformly distributed win rate, divided by the
    likelihood with the win rate 1/2: ``2^n B(first + 1, second + 1)``, n = first + second. Between equal rankings it
    reaches 1 / alpha at any time with probability ``alpha`` at most (Ville), so a verdict holds however often somebody
    looks. The interval holds the win rates against which the evidence stays below 1 / alpha.

    >>> result = verdict(20, 60)
    >>> result.better, result.share, round(result.low, 3), round(result.high, 3), round(result.confidence, 4)
    (1, 0.75, 0.579, 0.88, 0.9998)
    >>> verdict(20, 30).better is None
    True
    """
    count = first + second
    if not count:
        return Verdict(None, None, 0.0, 1.0, 0.0)
    # The logarithm of the likelihood with a uniformly distributed win rate.
    log_uniform = math.lgamma(first + 1) + math.lgamma(second + 1) - math.lgamma(count + 2)
    log_evidence = log_uniform + count * math.log(2)
    confidence = max(0.0, 1.0 - math.exp(-log_evidence))
    share = second / count
    low, high = (_edge(first, second, log_uniform, share, end, alpha) for end in (0.0, 1.0))
    sure = confidence >= 1 - alpha
    return Verdict(int(second > first) if sure else None, share, low, high, confidence)


def _edge(first: int, second: int, log_uniform: float, share: float, end: float, alpha: float) -> float:
    """The win rate between ``share`` and ``end`` at which the evidence reaches 1 / alpha."""
    inside, outside = share, end
    for _ in range(STEPS):
        rate = (inside + outside) / 2
        log_likelihood = _times_log(second, rate) + _times_log(first, 1 - rate)
        if log_uniform - log_likelihood < -math.log(alpha):
            inside = rate
        else:
            outside = rate
    return inside if share != end else end


def _times_log(count: int, rate: float) -> float:
    return count * math.log(rate) if count and rate > 0 else (-math.inf if count else 0.0)
