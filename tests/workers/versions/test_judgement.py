"""The guard's last decision, as the history and a node show it."""

from __future__ import annotations

import pytest

from omdml.workers.model.judging.guard import FEWEST, VOTES
from omdml.workers.versions.judgement import judgement, sentence, stored_snapshot
from tests.support.shops import Shop, asking, refused

FIGURES = {"version": 64, "reference": 32, "margin": 0.031, "doubt": 0.012, "queries": 40}
PROGRESS = {"mistake_rate": 0.1, **{f"guard_{name}": value for name, value in FIGURES.items()}}


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def judged(shop):
    """The guard's last decision, as the history tells it."""
    return judgement(shop.store, "shop", lambda: stored_snapshot(shop.store, "shop", None))


def withhold(shop, reason, **changes):
    """Publish what was learned so far, but keep it from going live."""
    shop.store.publish(shop.snapshot(**changes), shop.epoch, reason)


def test_nothing_is_judged_before_anything_was_compared(shop):
    assert judged(shop).decision == "not judged"
    shop.publish()
    decision = judged(shop)
    assert (decision.decision, decision.at, decision.margin) == ("not judged", None, None)
    assert f"A judgement takes {FEWEST} held-out events of at least {VOTES} queries" in decision.sentence


def test_an_allowed_version_is_shown_with_its_margin_and_doubt(shop):
    shop.publish(progress=PROGRESS)
    decision = judged(shop)
    assert (decision.decision, decision.reason) == ("allowed", "")
    assert {name: getattr(decision, name) for name in FIGURES} == FIGURES
    assert decision.in_a_line == f"allowed. {decision.sentence}"


def test_a_worse_version_that_is_allowed_is_said_to_be_worse_but_not_enough(shop):
    shop.publish(progress=PROGRESS | {"guard_margin": -0.031})
    assert judged(shop).sentence.startswith("Worse, but not by enough to withhold it. ")
    shop.learn()
    withhold(shop, "it is worse", progress=PROGRESS | {"guard_margin": -0.031})
    assert judged(shop).sentence.startswith("Worse. ")


def test_a_withheld_version_is_shown_with_its_own_margin_and_reason(shop):
    shop.publish(progress=PROGRESS)
    shop.learn()
    withhold(shop, "the norm of L.shape went from 1 to 20 at once", progress=PROGRESS | {"guard_margin": -0.5})
    decision = judged(shop)
    assert (decision.decision, decision.margin) == ("withheld", -0.5)
    assert decision.reason.startswith("the norm of")
    assert decision.at == shop.store.history("shop")[-1]["at"]


def test_a_version_that_was_taken_back_is_shown_until_the_next_one(shop):
    shop.publish(progress=PROGRESS)
    shop.store.note("shop", shop.epoch, "taken back", "to what version 32 had: worse")
    assert (judged(shop).decision, judged(shop).reason) == ("taken back", "to what version 32 had: worse")
    shop.learn()
    shop.publish(progress=PROGRESS)
    assert judged(shop).decision == "allowed"


def test_a_damaged_snapshot_leaves_the_decision_and_its_reason(shop):
    shop.publish(progress=PROGRESS)
    shop.learn()
    withhold(shop, "it is worse", progress=PROGRESS)
    shop.damage(shop.snapshot())
    decision = judged(shop)
    assert (decision.decision, decision.reason, decision.margin, decision.sentence) == (
        "withheld",
        "it is worse",
        None,
        "",
    )


def test_a_version_that_only_a_pin_holds_back_is_shown_as_allowed(shop):
    shop.publish(progress=PROGRESS)
    shop.store.move("shop", 0, pin=True)
    shop.learn()
    shop.publish(progress=PROGRESS)
    assert shop.store.history("shop")[-1]["what"] == "held"
    assert judged(shop).decision == "allowed"


def test_a_reset_model_is_not_judged(shop):
    shop.publish(progress=PROGRESS)
    shop.store.note("shop", shop.epoch, "reset", "was at version 20")
    assert judged(shop).decision == "not judged"


@pytest.mark.parametrize(
    ("margin", "begin", "comparison"),
    [
        (0.031, "Better. ", "further ahead than version 32 does: margin +0.031, give or take 0.012"),
        (-0.031, "Worse. ", "less far ahead than version 32 does: margin -0.031, give or take 0.012"),
        (-0.012, "No sure difference. ", "about as far ahead as version 32 does: margin -0.012, give or take 0.012"),
    ],
)
def test_a_comparison_is_better_or_worse_only_beyond_its_doubt(margin, begin, comparison):
    text = sentence(FIGURES | {"margin": margin})
    assert text.startswith(begin)
    assert comparison in text


def test_a_node_tells_the_decision_about_what_it_answers_with(shop):
    with shop.serving() as node, asking(node) as client:
        assert client.get("/models/shop/guard").raise_for_status().json()["decision"] == "not judged"
        shop.learn()
        withhold(shop, "it is worse", progress=PROGRESS)
        decision = client.get("/models/shop/guard").raise_for_status().json()
        assert (decision["decision"], decision["reason"], decision["queries"]) == ("withheld", "it is worse", 40)
        assert "did you mean 'shop'" in refused(client.get("/models/shpo/guard"), 404, "unknown_model")
        schema = client.get("/schema").json()
        answer = schema["paths"]["/models/{model}/guard"]["get"]["responses"]["200"]["content"]["application/json"]
        described = schema["components"]["schemas"][answer["schema"]["$ref"].rpartition("/")[2]]["properties"]
        assert described.keys() == decision.keys()
