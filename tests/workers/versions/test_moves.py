"""Rollbacks and pins after the guard took something back: two snapshots have one number, some are known to be bad."""

from __future__ import annotations

import pytest

from omdml.workers.versions import moves
from omdml.workers.versions.serving import loadable
from omdml.workers.versions.targets import TAKEN_BACK, why_taken_back
from tests.support.shops import Shop


@pytest.fixture
def taken_back(tmp_path):
    """A shop whose versions 60 and 80 went live, and were then taken back: what 40 had is live again as version 100.

    What was learned up to 100 is withheld, so there are two snapshots of version 100.
    """
    shop = Shop(tmp_path)
    published = [shop.publish()]
    while shop.learner.version < 80:
        shop.learn()
        published.append(shop.publish())
    assert published == [0, 20, 40, 60, 80]
    shop.learn()
    shop.publish(metric=shop.metrics[40])
    shop.store.note("shop", shop.epoch, TAKEN_BACK, why_taken_back(40, "not as good"))
    shop.store.publish(shop.snapshot(), shop.epoch, withheld="not as good")
    return shop


def line_of(shop, what, version):
    """The only line of the history that tells this."""
    (line,) = [line for line in shop.store.history("shop") if (line["what"], line["version"]) == (what, version)]
    return line


def test_a_pin_without_a_version_keeps_what_is_live(taken_back):
    before = taken_back.store.current("shop")
    assert moves.pin(taken_back.store, "shop", kind=taken_back.catalogue).digest == before.digest


def test_the_history_distinguishes_a_live_version_from_a_withheld_one(taken_back):
    lines = taken_back.store.history("shop")
    answers = loadable(taken_back.store, "shop", lines, lines, lambda model: taken_back.catalogue)
    by_digest = {line["digest"]: answer for line, answer in zip(lines, answers, strict=True) if answer}
    assert by_digest[line_of(taken_back, "published", 100)["digest"]] == "yes"
    assert by_digest[line_of(taken_back, "held", 100)["digest"]] == "no: another one of this version takes its place"


def test_a_rollback_without_a_version_passes_over_what_was_taken_back(taken_back):
    assert moves.rollback(taken_back.store, "shop", kind=taken_back.catalogue).version == 40
    assert moves.rollback(taken_back.store, "shop", kind=taken_back.catalogue).version == 20


def test_a_rollback_later_leads_to_what_the_guard_brought_back(taken_back):
    before = taken_back.store.current("shop")
    taken_back.learn()
    taken_back.publish()
    assert moves.rollback(taken_back.store, "shop", kind=taken_back.catalogue).digest == before.digest


def test_a_version_that_was_taken_back_can_be_asked_for_by_its_number(taken_back):
    assert moves.rollback(taken_back.store, "shop", 80, kind=taken_back.catalogue).version == 80
