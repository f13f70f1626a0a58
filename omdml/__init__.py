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

# The learner of models whose configuration names none.
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


# The learners import numba and scipy, which takes more than a second. The command line needs only the errors of this
# package to report a wrong configuration, so the learners are imported when somebody first asks for one.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from omdml import learners

    return getattr(learners, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
