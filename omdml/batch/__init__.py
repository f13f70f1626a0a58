"""Starts from a log: the optimum of a regularised problem over logged comparisons, as an ``init`` (MATHS 6)."""

from omdml.batch.full import fit_full
from omdml.batch.newton import fit_vector
from omdml.batch.ranked import fit_pairs, fit_ranked
from omdml.batch.starts import batch_learners, batch_start, check_batch_form

__all__ = ["batch_learners", "batch_start", "check_batch_form", "fit_full", "fit_pairs", "fit_ranked", "fit_vector"]
