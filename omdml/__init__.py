"""The learning core of omdml: arrays in, arrays out; no files, no network, no clock."""

from omdml.learners import LEARNERS, LOMDML, OMDML, Learner, Qwise

__all__ = ["LEARNERS", "LOMDML", "OMDML", "Learner", "Qwise"]
