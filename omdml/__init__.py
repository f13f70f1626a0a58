"""The learning core of omdml: learners that turn comparisons into a metric. Arrays in, arrays out.

``DCA`` is the default learner, and ``LEARNERS`` has all of them, by the names that configurations use. Each takes
``dims``, the dimension of each modality: an item has one vector for each. Items are rows of ``features``, and a
comparison names them by their row numbers:

>>> import numpy as np
>>> from omdml import DCA
>>> features = {"color": np.random.default_rng(0).random((50, 8))}
>>> model = DCA(dims={"color": 8})
>>> model.learn_many([[0, 1, 2], [3, 4, 5]], features).scores.shape  # rows of query, relevant, irrelevant
(2,)
>>> model.version
2
>>> model.metric.embed(features).dtype
dtype('float32')

All errors are subclasses of ``omdml.errors.OmdmlError``. The core has no files, no network, no clock and no threads.
``omdml.client`` is the client of a running node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omdml.learners import *  # noqa: F403
    from omdml.learners import LEARNERS, Learner, Outcome, merge, start_from_pairs

# The learner of models whose configuration names none.
DEFAULT_LEARNER = "dca"
# The class of each learner, by the name that a configuration uses. LEARNERS has the same, but takes a tenth of a second
# to import. That is too long for a command that only reports a mistyped name. A test compares the two.
LEARNER_CLASSES = {
    "cpmtml": "CPmtML",
    "dca": "DCA",
    "diagonal": "Diagonal",
    "lomdml": "LOMDML",
    "mtlmca": "MtLMCA",
    "oasis": "OASIS",
    "omdml": "OMDML",
    "qwise": "Qwise",
    "setnet": "SetNet",
    "signed": "Signed",
    "stml": "StML",
    "utml": "UtML",
}

__all__ = [
    "DEFAULT_LEARNER",
    "LEARNERS",
    "LEARNER_CLASSES",
    "Learner",
    "Outcome",
    "merge",
    "start_from_pairs",
    *LEARNER_CLASSES.values(),
]


# The learners import numpy and river, which takes a tenth of a second. The command line needs only the errors of this
# package to report a wrong configuration, so the learners are imported when somebody first asks for one.
def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from omdml import learners

    return getattr(learners, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
