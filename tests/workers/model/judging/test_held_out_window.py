"""The held-out events that judge: which stay, and what they say of a metric."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml import LEARNERS
from omdml.margins import margins
from omdml.workers.model.judging.held_out_window import (
    SETS,
    WINDOW,
    JudgingEvent,
    Window,
    chosen,
    judgement,
    judging,
    margins_on,
    opposed,
    share,
)
from omdml.workers.model.stored_model import COMPARISON_BYTES
from tests.support.deep import examples
from tests.support.worlds import ITEMS, TASKS, catalogue, triplets


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    return catalogue(tmp_path_factory.mktemp("items"))


def triplet(*rows):
    return JudgingEvent([list(rows)])


def pair(task, similar, left, right):
    return JudgingEvent([[left, right]], similar=similar, task=task)


def judged(query, *sets):
    return JudgingEvent([list(query), *map(list, sets)], 1)


def admitted(events, items=10_000, tasks=1, sets=False):
    window = Window([], items, tasks, sets)
    for event in events:
        window.add(event)
    return window.events


# Which events stay in the window
def same_side(event, other):
    return (other.task, other.similar) == (event.task, event.similar)


def same_query(event, other):
    return (other.rows[0] == event.rows[0]) if event.relevant else (other.rows[0][0] == event.rows[0][0])


def names(item, _, other):
    return any(item in row for row in other.rows)


def literal(events, items, tasks, sets):
    """The rule, literally: one event after the other, everything counted again each time."""
    size = SETS if sets else WINDOW
    per_query = max(size // 16, int(np.ceil(4 * size / items)))
    per_item = max(size // 8, int(np.ceil(8 * size / items)))
    per_side = size // (2 * tasks)
    expected = []
    for event in events:
        rules = [(per_side, same_side)] if event.similar is not None else [(per_query, same_query)]
        for item in sorted({item for row in event.rows for item in row}):
            rules.append((per_item, partial(names, item)))
        for most, alike in rules:
            while len(same := [other for other in expected if alike(event, other)]) >= most:
                expected = [other for other in expected if other is not same[0]]
        expected = [*expected, event][-size:]
    return expected


@st.composite
def logs(draw):
    """Events of one kind, many of them about few items."""
    kind = draw(st.sampled_from(["triplet", "pair", "set"]))
    count, few = draw(st.integers(0, 450)), draw(st.integers(3, 40))
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    events = []
    for turn in range(count):
        rows = numbers.integers(0, few if numbers.random() < 0.6 else 5_000, 6).tolist()
        if kind == "triplet":
            events.append(JudgingEvent([rows[:3], rows[3:]] if numbers.random() < 0.2 else [rows[:3]]))
        elif kind == "pair":
            events.append(pair(TASKS[rows[2] % 2], bool(numbers.random() < 0.9), rows[0], rows[1] + turn % 2))
        else:
            events.append(judged(rows[:1], rows[1:3], rows[3:6]))
    return events, kind


@settings(max_examples=examples(12), deadline=None)
@given(log=logs(), items=st.sampled_from([3, 20, 64, 5_000]))
def test_the_window_is_what_the_rule_says_word_for_word(log, items):
    events, kind = log
    tasks, sets = (2 if kind == "pair" else 1), kind == "set"
    assert list(map(id, admitted(events, items, tasks, sets))) == list(map(id, literal(events, items, tasks, sets)))


@settings(max_examples=examples(12), deadline=None)
@given(log=logs(), cut=st.integers(0, 450))
def test_shares_hold_after_every_event_and_across_restarts(log, cut):
    events, kind = log
    sets, tasks = kind == "set", 2 if kind == "pair" else 1
    size = SETS if sets else WINDOW
    window = Window([], 5_000, tasks, sets)
    for number, event in enumerate(events):
        if number == cut:
            window = Window(list(window.events), 5_000, tasks, sets)
        window.add(event)
        assert window.events[-1] is event
        assert len(window.events) <= size
    events_left = window.events
    assert (
        max(Counter(i for e in events_left for i in {i for row in e.rows for i in row}).values(), default=0)
        <= size // 8
    )
    if kind == "triplet":
        assert max(Counter(e.rows[0][0] for e in events_left).values(), default=0) <= size // 16
    if kind == "pair":
        assert max(Counter((e.task, e.similar) for e in events_left).values(), default=0) <= size // 4
    assert events_left == admitted(events, 5_000, tasks, sets)


def test_without_repetitions_the_newest_stay():
    events = [triplet(3 * n, 3 * n + 1, 3 * n + 2) for n in range(600)]
    assert admitted(events) == events[-WINDOW:]


@pytest.mark.parametrize("sets", [False, True])
def test_items_and_queries_of_events_that_left_are_not_counted(sets):
    window = Window([], 1_000_000, sets=sets)
    for n in range(0, 9_000, 3):
        window.add(judged([n, n + 1], [n + 2], [n]) if sets else triplet(n, n + 1, n + 2))
    assert len(window._counts) == 4 * window.size


def test_held_out_comparisons_take_about_as_many_bytes_as_are_counted():
    rows = np.random.default_rng(0).integers(0, 100_000, (3_000, 3)).tolist()
    tracemalloc.start()
    window = Window([], 100_000)
    for row in rows:
        window.add(triplet(*row))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.7 < held / (COMPARISON_BYTES * len(window.events)) < 1.4


def test_a_storm_about_three_items_takes_only_an_eighth_of_the_window():
    sound = [triplet(3 * n, 3 * n + 1, 3 * n + 2) for n in range(WINDOW)]
    storm = [triplet(9_000, 9_001, 9_002) if n % 2 else triplet(9_002, 9_001, 9_000) for n in range(5_000)]
    left = admitted([*sound, *storm])
    assert left[: -WINDOW // 8] == sound[WINDOW // 8 :]
    assert len(left) == WINDOW


def test_the_window_fills_even_if_there_are_few_items():
    draw = np.random.default_rng(0)
    events = [triplet(*draw.choice(5, 3, replace=False).tolist()) for _ in range(1_000)]
    assert len(admitted(events, items=5)) > 0.9 * WINDOW


@pytest.mark.parametrize(("items", "expected"), [(5_000, (16, 32)), (64, (16, 32)), (32, (32, 64)), (1, (1024, 2048))])
def test_shares_grow_if_a_catalogue_has_few_items(items, expected):
    assert (share(WINDOW, 1 / 16, 4, items), share(WINDOW, 1 / 8, 8, items)) == expected


def test_rare_dissimilar_pairs_stay_for_similar_ones_to_be_compared_with():
    events = [pair("one", n % 10 != 0, 2 * n, 2 * n + 1) for n in range(4_000)]
    left = admitted(events)
    assert Counter(event.similar for event in left) == {True: WINDOW // 2, False: WINDOW // 2}


def test_a_log_of_similar_pairs_only_says_nothing(items):
    pairs = admitted([pair("one", True, n % ITEMS, (n + 1) % ITEMS) for n in range(400)], items=ITEMS)
    assert len(pairs) == WINDOW // 2
    assert margins_on(started("cpmtml", items).metric, pairs, items.features).shape == (0,)


def test_of_an_event_of_many_comparisons_some_are_kept_evenly_chosen():
    rows = np.array([[0, r, s] for r in range(1, 6) for s in range(6, 12)])
    assert chosen(rows).tolist() == rows[[0, 4, 8, 12, 16, 20, 24, 29]].tolist()
    assert chosen(rows[:3]).tolist() == rows[:3].tolist()


# What the window says of a metric
def started(name, items):
    """A learner of this name at its start."""
    options = {"cpmtml": {"rank": 3, "tasks": list(TASKS)}}.get(name, {"rank": 3})
    learner = LEARNERS[name](dims=dict(items.dims), **options)
    learner.start(items.features)
    return learner


def test_an_event_says_the_mean_of_its_comparisons(items):
    metric = started("lomdml", items).metric
    rows = triplets(9).tolist()
    result = margins_on(
        metric, [JudgingEvent(rows[:5]), JudgingEvent(rows[5:6]), JudgingEvent(rows[6:])], items.features
    )
    each = margins(metric, np.array(rows), items.features)
    np.testing.assert_allclose(result, [each[:5].mean(), each[5], each[6:].mean()], rtol=1e-6)


def test_similar_pairs_are_compared_with_the_newest_dissimilar_of_their_task(items):
    events = [pair("one", True, 1, 2), pair("one", True, 3, 4), pair("other", False, 5, 6), pair("one", False, 7, 8)]
    assert {task: rows.tolist() for task, rows in opposed(events).items()} == {"one": [[3, 4, 7, 8]], "other": []}
    metric = started("cpmtml", items).metric
    result = margins_on(metric, events, items.features)
    np.testing.assert_allclose(result, margins(metric, np.array([[3, 4, 7, 8]]), items.features, "one"))


def test_pairs_speak_in_the_order_of_their_age(items):
    events = [pair("one", n % 2 == 0, n, n + 1) for n in range(40)]
    metric = started("cpmtml", items).metric
    rows = np.array([[n, n + 1, n + 1, n + 2] for n in range(0, 40, 2)])
    np.testing.assert_allclose(margins_on(metric, events, items.features), margins(metric, rows, items.features, "one"))


# Comparisons and pairs, of a learner that takes both
def both(comparisons, similar, dissimilar):
    events = [triplet(3 * n, 3 * n + 1, 3 * n + 2) for n in range(comparisons)]
    events += [pair("default", True, 2 * n, 2 * n + 1) for n in range(similar)]
    events += [pair("default", False, 2 * n + 1, 2 * n) for n in range(dissimilar)]
    return [events[turn] for turn in np.random.default_rng(0).permutation(len(events))]


@pytest.mark.parametrize(
    ("counts", "pairs"),
    [((5, 5, 5), False), ((5, 6, 6), True), ((5, 60, 5), False), ((0, 7, 0), True), ((1, 0, 9), False)],
)  # fmt: skip
def test_pairs_judge_if_they_say_more_than_the_comparisons_beside_them(counts, pairs):
    events = both(*counts)
    assert judging(events) == [event for event in events if (event.similar is not None) == pairs]


def test_margins_of_a_mixed_window_are_those_of_what_judges(items):
    metric = started("dca", items).metric
    for counts in ((9, 5, 5), (3, 9, 8)):
        window = Window(both(*counts), 10_000)
        margins_found = margins_on(metric, window.events, items.features)
        np.testing.assert_array_equal(margins_found, margins_on(metric, judging(window.events), items.features))
        assert len(window.query_numbers(len(margins_found))) == len(margins_found) == max(counts[0], min(counts[1:]))


def test_only_comparisons_of_a_mixed_window_keep_what_is_expected_of_them():
    window = Window(both(9, 5, 5), 10_000)
    window.expect(np.arange(9.0))
    assert [event.expected for event in judging(window.events)] == list(range(9))
    assert all(event.expected is None for event in window.events if event.similar is not None)


def test_keep_newest_counts_only_judging_events_of_a_mixed_window():
    window = Window(both(9, 5, 5), 10_000)
    newest = judging(window.events)[-4:]
    since_the_first = window.events[next(n for n, event in enumerate(window.events) if event is newest[0]) :]
    window.keep_newest(4)
    assert window.events == since_the_first
    assert judging(window.events)[-4:] == newest
    before = list(window.events)
    window.keep_newest(40)
    assert window.events == before


def test_the_sets_of_a_judgement_come_back_as_they_were_sent():
    results = judgement(judged([3], [1, 2], [4, 5, 6]))
    assert results.query.tolist() == [3]
    assert [entry.tolist() for entry in results.relevant] == [[1, 2]]
    assert [entry.tolist() for entry in results.irrelevant] == [[4, 5, 6]]
