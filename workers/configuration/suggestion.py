"""The name that was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggestion(name: str, valid: Iterable[str]) -> str:
    """``: did you mean 'x'?``, or what there is."""
    names = list(valid)
    near = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {near[0]!r}?" if near else f": there are {', '.join(names) or 'none'}"
