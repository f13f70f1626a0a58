"""The speed of every learner: what it is compared with must run."""

import numpy as np
import pytest

from benchmarks.learning.learners import ITEMS, cases, items
from benchmarks.learning.sets import judgements

DIM = 8


@pytest.mark.parametrize("name", cases(DIM))
def test_the_numpy_loop_of_a_learner_runs(name):
    case = cases(DIM)[name]
    rows = np.random.default_rng(0).integers(0, ITEMS, (4, case.width)) if case.width else judgements(4, ITEMS)
    case.loop(rows, items(DIM))
