"""The learning core of omdml: arrays in, arrays out; no files, no network, no clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omdml.learners import (
        DCA,
        LEARNERS,
        LOMDML,
        OASIS,
        OMDML,
        CPmtML,
        Diagonal,
        Learner,
        MtLMCA,
        Qwise,
        SetNet,
        Signed,
        StML,
        UtML,
        merge,
        start_from_pairs,
    )

# What learns if nobody chooses.
DEFAULT_LEARNER = "dca"

__all__ = [
    "DCA",
    "DEFAULT_LEARNER",
    "LEARNERS",
    "LOMDML",
    "OASIS",
    "OMDML",
    "CPmtML",
    "Diagonal",
    "Learner",
    "MtLMCA",
    "Qwise",
    "SetNet",
    "Signed",
    "StML",
    "UtML",
    "merge",
    "start_from_pairs",
]


# The learners bring numba and scipy, more than a second of imports. The command line needs only the errors of this
# package to say what is wrong with a configuration, so the learners come when they are first asked for.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from omdml import learners

    return getattr(learners, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
