"""``omdml bootstrap``: a model begun from an archive, and a worker that goes on with it."""

from __future__ import annotations

import numpy as np
import pytest

from omdml.learners import DCA
from tests.support.deep import examples
from tests.support.histories import History, sums_of, taken


@pytest.fixture
def history(tmp_path):
    return History(tmp_path)


@pytest.mark.parametrize("seed", range(examples(15)))
def test_an_archive_and_a_worker_take_what_a_worker_alone_takes(tmp_path, seed):
    # Given a log with repeats, copies, held-out and refused events, and an archive that ends anywhere
    history = History(tmp_path)
    history.tell(400, seed)
    end = int(np.random.default_rng(seed).integers(1, history.log.end(history.home)))
    alone, begun = history.empty_store(), history.empty_store()
    history.adopted(history.archived(end), begun)
    # If a worker goes on from there, and another one learns the same log alone
    history.tell(50, seed + 1000)
    both = history.worked(begun, "begun")
    letters = history.letters_about_the_model()
    history.bury_nothing()
    whole = history.worked(alone, "alone")
    # I expect the same events learned, held out, refused and passed over, and the same sums to the byte
    assert taken(both) == taken(whole)
    assert sums_of(both) == sums_of(whole)
    assert letters == history.letters_about_the_model()
    assert whole.progress["tally"]["repeated"] and whole.progress["hold_out"]["count"] and letters
    np.testing.assert_array_equal(*(DCA.from_bytes(one.state)._engine.state.asked for one in (both, whole)))
