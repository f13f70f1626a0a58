"""What simulated people know and say, for each kind of feedback that a learner takes."""

from __future__ import annotations

import csv
from collections import Counter

import numpy as np
import pytest

from omdml import LEARNERS
from omdml.errors import ConfigurationError
from omdml.feedback import Pair, Quadruplet, SetJudgement, Triplet, decode
from omdml.workers.configuration.specs import Specs
from omdml.workers.demo.digits import load_digits
from omdml.workers.demo.people.albums import Albums, made_albums
from omdml.workers.demo.people.crowd import Task, Voice
from omdml.workers.demo.people.habits import Habits
from omdml.workers.demo.people.labels import Labels
from omdml.workers.demo.people.orders import Order
from omdml.workers.demo.scenarios import subject
from omdml.workers.demo.simulation import run_simulation
from omdml.workers.node.catalogues import CurrentModels
from tests.support.shops import Shop, listening
from tests.support.worlds import ITEMS, TASKS, configuration, items

FORMS = {"triplet": Triplet, "pair": Pair, "quadruplet": Quadruplet, "set": SetJudgement}
AMOUNTS = {f"i{number}": number // 4 for number in range(400)}
TRUTHFUL = Habits(wrong=0.0)


@pytest.fixture(scope="module")
def digits():
    return load_digits()


def events_of_a_person(scenario, truth, searches=60, habits=TRUTHFUL):
    """The events of one person who knows one truth and is shown nothing."""
    voice = Voice(truth, Task("http://nowhere", "m", searches, habits=habits), scenario.form, number=0)
    return [event for _ in range(searches) for event in voice.say(voice.person.think(), [], 3)]


@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_people_send_every_learner_the_kinds_of_events_that_it_takes(digits, learner):
    scenario = subject(learner, digits, seed=0)
    LEARNERS[learner](dims={"any": 64}, **scenario.options)
    for truth in scenario.truths:
        events = events_of_a_person(scenario, truth)
        assert {FORMS[kind] for kind in LEARNERS[learner].accepts} >= set(map(type, events))
        assert len(events) == 180
        assert {getattr(event, "task", truth.task) for event in events} == {truth.task}


def test_nobody_speaks_of_a_held_out_item(digits):
    for learner in ("lomdml", "cpmtml", "signed"):
        scenario = subject(learner, digits, seed=0)
        for truth in scenario.truths:
            assert 100 < len(truth.held_out) <= 201
            named = " ".join(map(str, events_of_a_person(scenario, truth)))
            assert named
            assert not any(item in named for item in truth.held_out)


def test_pairs_are_half_similar_and_true_in_the_sense_of_their_task(digits):
    scenario, digit_of = subject("cpmtml", digits, seed=0), dict(zip(digits.ids, map(int, digits.labels), strict=True))
    for truth, are_similar in zip(scenario.truths, (lambda a, b: a == b, lambda a, b: a % 2 == b % 2), strict=True):
        pairs = events_of_a_person(scenario, truth)
        assert all(are_similar(digit_of[pair.left], digit_of[pair.right]) == pair.similar for pair in pairs)
        assert Counter(pair.similar for pair in pairs) == {True: 90, False: 90}


def test_an_order_is_sent_as_far_pairs_that_rise_and_near_pairs_of_one_item(digits):
    scenario = subject("signed", digits, seed=0)
    ink = dict(zip(digits.ids, digits.features["pixels"].sum(axis=1), strict=True))
    events = events_of_a_person(scenario, scenario.truths[0])
    assert events
    for event in events:
        more, less = event.far
        assert event.near == (less, less)
        assert ink[more] >= ink[less]


def test_an_order_offers_open_items_with_more_or_with_less_than_the_query():
    order = Order(AMOUNTS, seed=0)
    query = order.queries[0]
    hidden = set(order.held_out)
    more = {item for item in AMOUNTS if AMOUNTS[item] > AMOUNTS[query]}
    less = {item for item in AMOUNTS if AMOUNTS[item] < AMOUNTS[query]}
    assert set(order.among(query, True)) == more - hidden != set()
    assert set(order.among(query, False)) == less - hidden != set()
    assert not order.fits(query, "unknown")
    assert order.answers == 399


@pytest.mark.parametrize("amounts", [{}, {"a": 1.0, "b": 2.0, "c": 3.0}])
def test_too_few_amounts_for_an_order_are_refused(amounts):
    with pytest.raises(ConfigurationError, match="expected at least 4"):
        Order(amounts, seed=0)


def test_sets_hold_two_to_five_open_items_of_a_label_that_is_looked_for():
    labels = Labels({f"i{number}": "abcdefgh"[number % 8] for number in range(400)}, seed=0)
    sets = made_albums(labels.open, 40, seed=0)
    assert Counter(map(len, sets.values())) == {2: 10, 3: 10, 4: 10, 5: 10}
    assert sets == made_albums(labels.open, 40, seed=0) != made_albums(labels.open, 40, seed=1)
    albums = Albums(labels, sets)
    for query in albums.held_out:
        assert not any(query in held for held in sets.values())
        fitting = {name for name, held in sets.items() if labels.of[query] in {labels.of[item] for item in held}}
        assert set(albums.among(query, True)) == fitting == {album for album in sets if albums.fits(query, album)}
        assert set(albums.among(query, False)) == set(sets) - fitting
    assert not albums.is_open("i0")
    assert albums.answers == 40


class Serving(Shop):
    """A shop whose one model has another learner."""

    def __init__(self, folder, learner, **options) -> None:
        super().__init__(folder)
        models = {"shop": {"learner": learner, **options}}
        self.current = CurrentModels(Specs(configuration(folder / "items", models), {"items": self.catalogue}))
        self.learner = LEARNERS[learner](dims=dict(self.catalogue.dims), **options)
        self.learner.start(self.catalogue.features)

    def snapshot(self, **changes):
        return super().snapshot(**{"learner": self.learner.name, **changes})

    def simulate(self, rows, count=40):
        """Have people with these rows of labels make ``count`` comparisons; returns the events that they sent."""
        path = self.catalogue.path.parent / "labels.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        with self.serving() as node, listening(node) as server:
            assert run_simulation(server.url, path, comparisons=count, people=2) == 0
        return [decode(record.value) for record in self.log.read(self.log.partitions[0], 0, 1000)]


@pytest.fixture(autouse=True)
def _no_waiting_for_versions(monkeypatch):
    # Nobody learns here, so no version will come.
    monkeypatch.setattr("omdml.workers.demo.observer.STILL_S", 0.0)


def test_a_simulation_reads_a_column_for_each_task_and_sends_pairs_of_all(tmp_path):
    shop = Serving(tmp_path, "cpmtml", tasks=list(TASKS), rank=3)
    labels = items()[1].tolist()
    events = shop.simulate([("id", *TASKS), *((f"i{row}", label, label % 2) for row, label in enumerate(labels))])
    assert len(events) == 40
    assert {event.task for event in events} == set(TASKS)


def test_a_simulation_of_one_task_needs_only_a_column_of_labels(tmp_path):
    shop = Serving(tmp_path, "stml", tasks=["identity"], rank=3)
    events = shop.simulate([("id", "label"), *((f"i{row}", label) for row, label in enumerate(items()[1]))])
    assert {event.task for event in events} == {"identity"}


def test_a_simulation_of_an_order_reads_labels_as_numbers(tmp_path):
    shop = Serving(tmp_path, "signed")
    amounts = np.random.default_rng(0).normal(size=ITEMS)
    events = shop.simulate([("id", "label"), *((f"i{row}", amount) for row, amount in enumerate(amounts))])
    assert all(isinstance(event, Quadruplet) for event in events)
    with pytest.raises(ConfigurationError, match=r"'i0' has label 'much': .* expected a number"):
        shop.simulate([("id", "label"), ("i0", "much")])
