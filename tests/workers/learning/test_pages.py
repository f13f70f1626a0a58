"""A result page teaches what its comparisons teach, sent one by one, whatever the learner."""

from __future__ import annotations

import math
import random

import pytest

from omdml import LEARNERS
from omdml.feedback import Page, Ranking, Triplet, encode
from tests.naive.pages import preferred_one_by_one
from tests.support.files.replays import LoggedShop, replayed
from tests.support.worlds import ITEMS, World, letters, run_until_idle

OF_TRIPLETS = sorted(name for name, learner in LEARNERS.items() if "triplet" in learner.accepts)
WEIGHING = [name for name in OF_TRIPLETS if "weight" in LEARNERS[name].columns]


def pages(count, model):
    draw = random.Random(model)
    for _ in range(count):
        query, *shown = (f"i{row}" for row in draw.sample(range(ITEMS), draw.randrange(4, 12)))
        clicked = draw.sample(shown, draw.randrange(1, len(shown)))
        positions = draw.sample(range(1, 50), len(shown)) if draw.random() < 0.5 else None
        yield Page(
            model=model, query=query, shown=tuple(shown), clicked=tuple(clicked),
            positions=None if positions is None else tuple(positions),
        )  # fmt: skip


@pytest.mark.parametrize("name", sorted({*OF_TRIPLETS} - {*WEIGHING}))
def test_a_page_teaches_what_its_comparisons_teach_one_by_one(tmp_path, name):
    models = {"shop": {"learner": name, "coordinates": "features"}}
    world, other = World(tmp_path / "pages", models=models), World(tmp_path / "triplets", models=models)
    for page in pages(12, "shop"):
        world.send(encode(page))
        other.send(*(
            encode(Triplet(model="shop", query=page.query, relevant=clicked, irrelevant=passed_over))
            for clicked, passed_over in preferred_one_by_one(page)
        ))  # fmt: skip
    for each in (world, other):
        run_until_idle(each.worker())
        assert letters(each) == []
    states = [each.store.claim("shop").checkpoint.state for each in (world, other)]
    assert states[0] == states[1]


def opinions(count, draw):
    """Pages, rankings and triplets, and the rows of the comparisons that each stands for."""
    for page in pages(count, "shop"):
        yield page, [(page.query, *pair) for pair in preferred_one_by_one(page)]
        query, *others = (f"i{row}" for row in draw.sample(range(ITEMS), draw.randrange(3, 12)))
        relevant = tuple(others[: draw.randrange(1, len(others))])
        irrelevant = tuple(others[len(relevant) :])
        ranking = Ranking(model="shop", query=query, relevant=relevant, irrelevant=irrelevant)
        yield ranking, [(query, r, s) for r in relevant for s in irrelevant]
        yield Triplet(model="shop", query=query, relevant=others[0], irrelevant=others[1]), [(query, *others[:2])]


@pytest.mark.parametrize("name", WEIGHING)
def test_a_page_and_a_ranking_count_as_one_opinion(tmp_path, name):
    # Given pages, rankings and triplets, and a worker that takes them a few at a time and is replaced in between
    models = {"shop": {"learner": name, "coordinates": "features"}}
    shop, opinions_sent = LoggedShop(tmp_path, models=models), list(opinions(12, random.Random(0)))
    for part in (opinions_sent[:17], opinions_sent[17:]):
        shop.tell(*(encode(event) for event, _ in part))
        checkpoint = shop.worked()
    # If a learner is told of each comparison of n what it counts for, 1 / sqrt(n)
    learner, features = LEARNERS[name](dims=dict(shop.catalogue.dims)), shop.catalogue.features
    learner.start(features)
    for _, rows in opinions_sent:
        numbers = [[int(item[1:]) for item in row] for row in rows]
        learner.learn_many(numbers, features, weight=1 / math.sqrt(len(rows)))
    # I expect the bytes of the worker, and of a replay
    assert checkpoint.state == learner.to_bytes()
    assert replayed(shop).learner.to_bytes() == learner.to_bytes()


def test_a_bad_page_is_a_letter_that_says_why_and_the_others_are_learned(tmp_path):
    world = World(tmp_path)
    page = b'{"type":"page","model":"shop","query":"i0","shown":["i1","i2","i3"],"clicked":["i2"]}'
    world.send(page, page.replace(b'["i2"]', b'["i9"]'), page.replace(b'["i2"]', b'["i1","i2","i3"]'), page)
    run_until_idle(world.worker())
    assert sorted((letter.reason, letter.error) for letter in letters(world)) == [
        ("invalid", "event: `clicked` names 'i9', which is not in `shown`: send all that was shown"),
        (
            "nothing_compared",
            "page of 0 comparisons: it puts no item before another (perhaps all were clicked). Do not send it",
        ),
    ]
    assert world.store.load("shop")[1].version == 4
