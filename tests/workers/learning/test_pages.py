"""A result page teaches what its comparisons teach, sent one by one, whatever the learner."""

from __future__ import annotations

import random

import pytest

from omdml import LEARNERS
from omdml.feedback import Page, Triplet, encode
from tests.naive.pages import preferred_one_by_one
from tests.support.worlds import ITEMS, World, letters, run_until_idle

OF_TRIPLETS = sorted(name for name, learner in LEARNERS.items() if "triplet" in learner.accepts)


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


@pytest.mark.parametrize("name", OF_TRIPLETS)
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


def test_a_bad_page_is_a_letter_that_says_why_and_the_others_are_learned(tmp_path):
    world = World(tmp_path)
    page = b'{"type":"page","model":"shop","query":"i0","shown":["i1","i2","i3"],"clicked":["i2"]}'
    world.send(page, page.replace(b'["i2"]', b'["i9"]'), page.replace(b'["i2"]', b'["i1","i2","i3"]'), page)
    run_until_idle(world.worker())
    assert sorted((letter.reason, letter.error) for letter in letters(world)) == [
        ("invalid", "event: `clicked` names 'i9', which is not in `shown`: send all that was shown"),
        (
            "nothing_compared",
            "page: every result was clicked, so nothing was passed over. Do not send such a page",
        ),
    ]
    assert world.store.load("shop")[1].version == 4
