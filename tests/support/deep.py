"""Two depths of the same tests: quick by default, everything with ``DEEP=1`` (``make test-deep``, which CI runs).

What takes long carries the marker ``deep`` and is left out by default; property tests draw fewer examples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest

DEEP = os.environ.get("DEEP", "") not in ("", "0")
deep = pytest.mark.deep
# By default one example in SHARE is drawn, but at least FEWEST.
SHARE, FEWEST = 10, 5


def examples(count: int) -> int:
    """How many examples of a property to draw, if it should be tried this often in the deep run."""
    return count if DEEP else min(count, max(FEWEST, count // SHARE))


def deep_after(first: int, cases: Iterable[object]) -> list[object]:
    """The cases of a parametrised test, of which all but the first ones carry the marker ``deep``."""
    first_cases, others = list(cases)[:first], list(cases)[first:]
    return first_cases + [pytest.param(*values(case), marks=deep) for case in others]


def values(case: object) -> tuple[object, ...]:
    """The values of a case for the test's parameters."""
    return case if isinstance(case, tuple) else (case,)
