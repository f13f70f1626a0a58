"""Learners by name: hyperparameters plus one verb each, on the shared engine."""

from omdml.learners.base import LEARNERS, Learner, Outcome
from omdml.learners.lomdml import LOMDML

__all__ = ["LEARNERS", "LOMDML", "Learner", "Outcome"]
