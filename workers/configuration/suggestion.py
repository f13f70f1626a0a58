"""The name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: str, valid: Iterable[str]) -> str:
    """``: did you mean 'x'?``, or what there is."""
    names = list(valid)
    near = nearest(name, names)
    return f": did you mean {near!r}?" if near else f": there are {', '.join(names) or 'none'}"


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that is closest to this one; None if none is close."""
    return next(iter(difflib.get_close_matches(name, list(valid), n=1)), None)
