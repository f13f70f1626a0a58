"""What DCA makes of clicks: few ones, wrong ones, odd ones; and what Hedge loses."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import DCA, merge, start_from_pairs
from omdml.evaluate import mean_average_precision
from tests.support.deep import examples
from tests.support.learning.dca import count_margins, learner, world


@pytest.mark.parametrize(("events", "expected"), [(1, 0.8 * 12**0.5), (100, 0.8 * 0.12**0.5)])
def test_what_is_added_to_the_variance_of_near_pairs_is_reported(events, expected):
    features, rows, *_ = world(0)
    model = learner(features)
    assert model.figures == {}
    model.learn_many(rows[:events], features)
    model._engine._flush()
    assert model.figures["shrinkage"] == pytest.approx(expected)


def test_a_few_triplets_beat_plain_features_and_wrong_answers_hardly_matter():
    features, rows, labels, draw = world(5, dims=(8, 40), items=400, events=3000, classes=8)
    swapped = rows.copy()
    wrong = draw.random(len(rows)) < 0.3
    swapped[wrong] = rows[wrong][:, [0, 2, 1]]
    queries = np.arange(100)

    def mean_precision(metric):
        return mean_average_precision(metric.embed(features), labels, queries)

    few, clean, noisy = (learner(features) for _ in range(3))
    few.start(features)
    plain = mean_precision(few.metric)
    few.learn_many(rows[:100], features)
    clean.learn_many(rows, features)
    noisy.learn_many(swapped, features)
    assert mean_precision(few.metric) > plain + 0.1
    assert mean_precision(clean.metric) > mean_precision(few.metric) > plain
    assert mean_precision(noisy.metric) > mean_precision(clean.metric) - 0.05


def test_plain_coordinates_are_all_there_is_at_the_start_and_fade_out():
    features, rows, _, _ = world(6, events=1200)
    model = learner(features)
    model.start(features)
    assert model.shares == {"plain": 1.0}
    model.learn_many(rows[:100], features)
    assert 0.04 < model.shares["plain"] < 0.06
    model.learn_many(rows[100:], features)
    assert model.shares.keys() <= {"items", "far"}
    assert sum(model.shares.values()) == pytest.approx(1.0)


def test_hedge_loses_no_more_than_its_bound_and_leans_on_the_better_expert():
    features, rows, _, draw = world(23, dims=(8, 40), items=400, events=3000, classes=8)
    wrong = draw.random(len(rows)) < 0.4
    rows[wrong] = rows[wrong][:, [0, 2, 1]]
    model = learner(features)
    assert (model.hedge_loss, model.hedge_loss_bound) == (0.0, math.inf)
    for part in np.split(rows, [1, 30, 500]):
        model.learn_many(part, features)
        assert 0 < model.hedge_loss <= model.hedge_loss_bound
    items, far = model._engine.state.hedge[:2]
    assert items < far
    assert model.shares["items"] > 0.7
    assert learner(features, memory=50).hedge_loss_bound == math.inf


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data(), parts=st.integers(1, 12), steps=st.integers(1, 4))
def test_what_hedge_loses_stays_within_its_bound_whatever_is_said_and_merged(data, parts, steps):
    features, _, _, _ = world(26)
    first = learner(features)
    first.start(features)
    models = [copy.deepcopy(first) for _ in range(parts)]
    for _ in range(steps):
        for model in models:
            draw = np.random.default_rng(data.draw(st.integers(0, 1000)))
            worst = data.draw(st.booleans())
            for _ in range(data.draw(st.integers(1, 20))):
                losses = model._engine.state.hedge[:2]
                # In the worst case, the expert that has lost less is wrong by as much as possible.
                margins = np.where(losses <= losses.min(), 1.0, -1.0) if worst else draw.normal(0, 1, 2)
                count_margins(model, margins[:, None])
                assert model.hedge_loss <= model.hedge_loss_bound + 1e-9
        while len(models) > 1 and data.draw(st.booleans()):
            models = [merge(models[0], models[1]), *models[2:]]
            assert models[0].hedge_loss <= models[0].hedge_loss_bound + 1e-9
            assert DCA.from_bytes(models[0].to_bytes()).hedge_loss_bound == models[0].hedge_loss_bound


@pytest.mark.parametrize("memory", [1, 20])
def test_losses_that_have_faded_have_no_bound_even_if_nothing_fades_from_now_on(memory):
    features, rows, _, _ = world(27)
    model = learner(features, memory=memory)
    model.learn_many(rows[:100], features)
    faithful = DCA.from_bytes(model.learning_on(memory=0).to_bytes())
    faithful.learn_many(rows[100:], features)
    assert (model.hedge_loss_bound, faithful.hedge_loss_bound) == (math.inf, math.inf)


def test_a_few_triplets_after_many_pairs_do_not_spoil_what_these_say():
    features, rows, labels, _ = world(28, dims=(8, 40), items=400, events=3000, classes=8)
    model, scores = start_from_pairs(rows[:2000, :2], features), []
    for part in np.split(rows[2000:], [0, 1, 20, 200])[:4]:
        if len(part):
            model.learn_many(part, features)
        scores.append(mean_average_precision(model.metric.embed(features), labels, np.arange(100)))
    assert min(scores) > scores[0] - 0.01
    # an expert that has seen no far pair yet is not behind for that
    items, far, _, count, _ = model._engine.state.hedge
    assert abs(items - far) < 0.05 * count


def test_what_all_items_of_a_page_share_is_not_taken_for_what_people_mean():
    draw = np.random.default_rng(24)
    labels = draw.integers(0, 10, 500)
    light = 6.0 * draw.normal(0, 1, (500, 3))
    meant = draw.normal(0, 1, (10, 8))[labels] + 0.3 * draw.normal(0, 1, (500, 8))
    features = {"x": np.concatenate([light, meant], axis=1)}
    model = learner(features)
    model.start(features)
    while model.version < 300:
        embedded, query = model.metric.embed(features), int(draw.integers(500))
        apart = ((embedded - embedded[query]) ** 2).sum(axis=1)
        page = np.argsort(apart, kind="stable")[1:31]
        near, far = (page[(labels[page] == labels[query]) == alike] for alike in (True, False))
        count = min(len(near), len(far))
        if count:
            model.learn_many(np.stack([np.full(count, query), near[:count], far[:count]], axis=1), features)
    shares = model.shares
    assert shares["far"] > shares["items"]
    assert mean_average_precision(model.metric.embed(features), labels, np.arange(200)) > 0.6


def sound(model, features):
    """Embeddings of unit length, or 0, and finite; a checkpoint that resumes."""
    embedded = model.metric.embed(features)
    lengths = np.linalg.norm(embedded.astype(float), axis=1)
    assert np.isfinite(embedded).all()
    assert (lengths < 1 + 1e-5).all()
    assert DCA.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    return lengths


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "kind",
    ["few items", "two items", "one item", "constant", "one constant", "scales", "tiny", "huge", "alike", "subnormal"],
)
def test_odd_features_give_a_metric_that_is_bounded(kind, dtype):
    features, rows, _, draw = world(9, dims=(30, 6), events=200)
    count = {"few items": 5, "two items": 2, "one item": 1}.get(kind, 80)
    features = {name: x[:count] for name, x in features.items()}
    if kind == "constant":
        features = {name: np.ones_like(x) for name, x in features.items()}
    if kind == "one constant":
        features["m1"] = np.full_like(features["m1"], 7.0)
    if kind == "scales":
        features = {name: x * 10.0 ** draw.integers(-9, 9, x.shape[1]) for name, x in features.items()}
    if kind in ("tiny", "huge"):
        features = {name: x * (1e-15 if kind == "tiny" else 1e15) for name, x in features.items()}
    if kind == "subnormal":
        features = {name: x * (1e-40 if dtype == "float32" else 1e-310) for name, x in features.items()}
    if kind == "alike":
        features = {name: np.repeat(x[:4], 20, axis=0) for name, x in features.items()}
    model = learner(features, dtype=dtype)
    model.learn_many(rows % count, features)
    lengths = sound(model, {name: x.astype(dtype) for name, x in features.items()})
    assert kind in ("constant", "one item", "subnormal") or lengths.max() > 0.99


def test_fewer_items_than_coordinates_keep_what_they_span():
    features, rows, _, _ = world(10, dims=(50, 20), items=12, classes=3)
    model = learner(features)
    model.learn_many(rows, features)
    assert len(model._engine.state.deviations) == 11
    sound(model, features)


def test_contradictory_answers_alone_leave_the_order_of_plain_features():
    features, rows, labels, _ = world(11, dims=(8, 12), items=200, events=2000)
    both = np.concatenate([rows, rows[:, [0, 2, 1]]])
    model = learner(features)
    model.start(features)
    plain = mean_average_precision(model.metric.embed(features), labels, np.arange(50))
    model.learn_many(both, features)
    assert mean_average_precision(model.metric.embed(features), labels, np.arange(50)) > plain - 0.06
    sound(model, features)


def test_answers_about_three_items_alone_stay_bounded():
    features, _, _, _ = world(12, dims=(8, 30), items=200)
    model = learner(features)
    model.start(features)
    model.learn_many(np.tile([0, 1, 2], (3000, 1)), features)
    sound(model, features)
    identical = learner(features)
    identical.start(features)
    identical.learn_many(np.tile([0, 0, 2], (300, 1)), features)
    assert identical.shares == {"plain": 1.0}
    sound(identical, features)


def test_items_that_nobody_clicks_do_not_mislead_however_long_people_click():
    features, _, labels, draw = world(17, dims=(60, 60), items=600, classes=6)
    clicked = np.arange(120)
    query, relevant = (draw.choice(clicked, 12_000) for _ in range(2))
    alike = labels[query] == labels[relevant]
    rows = np.stack([query, relevant, draw.choice(clicked, 12_000)], axis=1)[alike]
    # some are wrong: what a shop's own items look like is all that tells noise from meaning
    wrong = draw.random(len(rows)) < 0.2
    rows[wrong, 1] = draw.choice(clicked, wrong.sum())
    model, scores = learner(features), []
    model.start(features)
    for part in np.split(rows, [200, 600]):
        model.learn_many(part, features)
        scores.append(mean_average_precision(model.metric.embed(features), labels, np.arange(300, 600)))
    assert scores[2] > max(scores[:2]) - 0.02


def test_items_that_are_clicked_over_and_over_do_not_spoil_the_other_ones():
    features, _, labels, draw = world(18, dims=(20, 20), items=400)
    clicked = np.arange(12)
    rows = draw.choice(clicked, (60_000, 3))
    rows = rows[(labels[rows[:, 0]] == labels[rows[:, 1]]) & (labels[rows[:, 0]] != labels[rows[:, 2]])]
    model, scores = learner(features), []
    model.start(features)
    for part in np.split(rows, [0, 100, 1000]):
        if len(part):
            model.learn_many(part, features)
        scores.append(mean_average_precision(model.metric.embed(features), labels, np.arange(100, 200)))
    assert min(scores[1:]) > scores[0] - 0.02


def test_one_click_on_a_broken_item_does_not_spoil_what_was_learned():
    features, rows, labels, _ = world(19, dims=(10, 10), items=300, events=1500)
    broken = {name: np.concatenate([x, x[:1]]) for name, x in features.items()}
    broken["m0"][300, 3] = 1e6
    model, twin = learner(features), learner(features)
    for each_model in (model, twin):
        each_model.start(features)
    model.learn_many([[0, 300, 1]], broken)
    for each_model in (model, twin):
        each_model.learn_many(rows, features)
    scores = [mean_average_precision(m.metric.embed(features), labels, np.arange(100)) for m in (model, twin)]
    assert scores[0] > scores[1] - 0.02


def test_memory_forgets_what_was_meant_before():
    features, rows, labels, _ = world(13, dims=(8, 8), items=200, events=4000)
    turned = {"m0": features["m1"], "m1": features["m0"]}
    forgetful, faithful = learner(features, memory=100), learner(features)
    for model in (forgetful, faithful):
        model.start(features)
        model.learn_many(rows[:3700], features)
        model.learn_many(rows[3700:], turned)
    scores = [mean_average_precision(m.metric.embed(turned), labels, np.arange(50)) for m in (forgetful, faithful)]
    assert scores[0] > scores[1] + 0.02
