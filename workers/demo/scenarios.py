"""What the demo is about: for each kind of learner, what people know about the digits and how they say it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from omdml.learners import LEARNERS
from omdml.workers.configuration.config import defaults
from omdml.workers.demo.digits import Digits
from omdml.workers.demo.people.albums import Albums, made_albums
from omdml.workers.demo.people.event_forms import Form, judgement, ordered_pair, pair, triplet
from omdml.workers.demo.people.ground_truth import Truth
from omdml.workers.demo.people.labels import Labels
from omdml.workers.demo.people.orders import Order

ALBUMS = 600


class Subject(NamedTuple):
    """What people know, and how they say it.

    Parameters
    ----------
    about
        What people say, in a few words.
    truths
        What people know, one truth for each task.
    options
        Options of the model, as in its configuration.
    sets
        The sets of the catalogue: the item ids of each set id.
    """

    about: str
    truths: Sequence[Truth]
    form: Form
    options: Mapping[str, Any] = {}
    sets: Mapping[str, Sequence[str]] = {}


def subject(learner: str, digits: Digits, seed: int) -> Subject:
    """What people say to this learner; ``seed`` chooses the held-out items."""
    kinds = LEARNERS[learner].accepts
    of = dict(zip(digits.ids, digits.labels, strict=True))
    if "triplet" in kinds:
        return Subject("this is more like that than like those", [Labels(of, seed)], triplet)
    if "pair" in kinds:
        return tasks(learner, of, seed)
    if "set" in kinds:
        labels = Labels(of, seed)
        sets = made_albums(labels.open, ALBUMS, seed)
        return Subject("which of many small sets show such a digit", [Albums(labels, sets)], judgement, sets=sets)
    amounts = dict(zip(digits.ids, digits.features["pixels"].sum(axis=1).tolist(), strict=True))
    return Subject("this digit has more ink than that one", [Order(amounts, seed)], ordered_pair)


def tasks(learner: str, of: Mapping[str, str], seed: int) -> Subject:
    """Two senses of similar: the same digit, and both even or both odd."""
    parity = {item: ("even", "odd")[int(label) % 2] for item, label in of.items()}
    truths = [Labels(of, seed, "digit"), Labels(parity, seed, "parity")]
    options = {"tasks": [truth.task for truth in truths]} if "tasks" in defaults(learner) else {}
    return Subject("these two are similar, those are not: as digits, or in being even or odd", truths, pair, options)
