"""The name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: str, valid: Iterable[str]) -> str:
    """The end of a message about an unknown name: ``: did you mean 'x'?``, or the names that are known."""
    names = list(valid)
    if near := nearest(name, names):
        return f": did you mean {near!r}?"
    return f"; expected {'one of ' * (len(names) > 1)}{', '.join(names)}" if names else "; there are none"


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that is closest to this one; None if none is close."""
    return next(iter(difflib.get_close_matches(name, list(valid), n=1)), None)
