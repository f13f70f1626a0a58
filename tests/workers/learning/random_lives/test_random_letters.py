"""Models and items come and go and letters are sent again, in any order: in the end each event was learned once."""

from __future__ import annotations

import random
from typing import ClassVar

import msgspec
import pytest

from omdml.streams.catalogues.building.build import add_items
from omdml.streams.letters import Resent, read_book
from omdml.streams.resent_events import headers_again
from omdml.workers.configuration.specs import Specs
from omdml.workers.operate.letters import UsersRoom, learnable, passed_letters
from tests.support.deep import deep_after
from tests.support.learning.audits import audited
from tests.support.records import read_checkpoint
from tests.support.worlds import World, items
from tests.workers.learning.random_lives.life import NAMES, WEIGHTS, Life

# This item is added only later.
LATE = "late"


class LifeWithLetters(Life):
    """A life in which an operator takes models out and puts them back, adds an item, and sends letters again."""

    weights: ClassVar = {**WEIGHTS, "send_late": 2, "add_late": 0.2, "take_out": 0.6, "put_back": 0.6, "resend": 1}

    def send_late(self):
        self.send(item=LATE)

    def add_late(self):
        (catalogue,) = self.world.configuration.catalogues.values()
        if LATE not in (catalogue_now := self.world.catalogue).ids:
            add_items(catalogue.path, {name: rows[:1] for name, rows in items(3)[0].items()}, ids=[LATE])
            catalogue_now.refresh()

    def take_out(self):
        """Leave out models at random, perhaps none: workers that begin from now on do not have them."""
        self.configure({name: self.all_models[name] for name in NAMES if name != self.chance.choice(NAMES)})

    def put_back(self):
        self.configure(self.all_models)

    @property
    def all_models(self):
        """The models that were configured at first."""
        self._all_models = getattr(self, "_all_models", None) or self.world.configuration.models
        return self._all_models

    def configure(self, models):
        assert self.all_models
        self.world.configuration = msgspec.structs.replace(self.world.configuration, models=models)

    def book(self):
        (graves,) = self.world.graves.partitions
        return read_book(self.world.graves.read(graves, 0, 10_000))

    def resend(self):
        """Do what ``omdml letters resend`` does; returns how many letters were open before."""
        book, specs = self.book(), Specs(self.world.configuration, {"items": self.world.catalogue})
        unsent = [letter for position, letter in book.letters.items() if position not in book.resent]
        standing, room = passed_letters(unsent, self.world.store), UsersRoom(specs, self.world.store)
        for letter in unsent:
            if learnable(letter, specs, standing, room).event is not None:
                self.world.log.send(letter.payload, letter.model, headers_again(letter, self.world.store.secret()))
                self.world.graves.send(Resent(letter.position).encode(), letter.model)
        return len(unsent)

    def end(self):
        """No more trouble: everything that was wrong is mended, and letters are sent again until none is left."""
        self.put_back()
        self.add_late()
        for _ in range(4):
            super().end()
            if not self.resend():
                return


@pytest.mark.parametrize("seed", deep_after(4, range(12)))
def test_letters_that_are_sent_again_are_learned_once_each(tmp_path, seed):
    random.seed(seed)
    world = World(tmp_path, models={name: {"learner": "lomdml", "rank": 2} for name in NAMES})
    life = LifeWithLetters(world, seed)
    for _ in range(160):
        life.happen()
    life.end()
    book = life.book()
    assert not book.letters.keys() - book.resent
    # An event that was sent again keeps its number. It does not matter at which of its places it was learned.
    numbers = {name: {event.headers["number"] for event in life.log() if event.model == name} for name in NAMES}
    assert set().union(*numbers.values()) == {str(number).encode() for number in range(life.sent)}
    checkpoints = (read_checkpoint(world.store.peek(name).to_bytes()) for name in NAMES)
    learned = {checkpoint["model"]: checkpoint["version"] for checkpoint in checkpoints}
    assert learned == {name: len(numbers[name]) for name in NAMES}
    assert audited(world)[1].wrong == {}
