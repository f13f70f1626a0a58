"""The learning core of omdml: arrays in, arrays out; no files, no network, no clock."""

from omdml.learners import (
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
)

__all__ = [
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
]
