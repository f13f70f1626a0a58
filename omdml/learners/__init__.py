"""Learners by name: hyperparameters plus one verb each, on the shared engine."""

from omdml.learners.base import LEARNERS, Learner, Outcome
from omdml.learners.lomdml import LOMDML
from omdml.learners.omdml import OMDML
from omdml.learners.qwise import Qwise

__all__ = ["LEARNERS", "LOMDML", "OMDML", "Learner", "Outcome", "Qwise"]
