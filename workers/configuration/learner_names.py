"""The names of all learners, for whoever must know them before the learners are imported."""

from __future__ import annotations

# The names in omdml.learners.LEARNERS, whose import takes a tenth of a second: too long to hear of a mistyped name. A
# test compares the two.
LEARNER_NAMES = (
    "cpmtml",
    "dca",
    "diagonal",
    "lomdml",
    "mtlmca",
    "oasis",
    "omdml",
    "qwise",
    "setnet",
    "signed",
    "stml",
    "utml",
)
