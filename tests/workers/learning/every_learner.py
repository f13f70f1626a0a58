"""A model of each learner, feedback for all of them, and what each learns from it without a worker."""

from __future__ import annotations

import inspect

import numpy as np

from omdml import LEARNERS
from omdml.comparisons import Judgement
from omdml.feedback import Pair, Quadruplet, SetJudgement, Triplet
from tests.support.worlds import TASKS, feedback, tasks_of

KINDS = ("triplet", "quadruplet", "pair", "set")
# So many events of each kind are sent to each model.
EVENTS = 40


def options(name):
    """The options of a model with this learner: a small rank, few clusters, and the tasks of our pairs."""
    parameters = inspect.signature(LEARNERS[name]).parameters
    small = {"rank": 3, "clusters": 2, "tasks": list(TASKS)}
    return {option: value for option, value in small.items() if option in parameters}


def models():
    """A model of each learner on features, named after the learner."""
    return {name: {"learner": name, "coordinates": "features", **options(name)} for name in LEARNERS}


def feedback_for(name):
    """Feedback of every kind that a learner takes, one of each kind at a time."""
    kinds = [kind for kind in KINDS if kind in LEARNERS[name].accepts]
    each = [feedback(kind, EVENTS, seed, name, tasks_of(name)) for seed, kind in enumerate(kinds)]
    return [event for turn in zip(*each, strict=True) for event in turn]


def everything():
    """The feedback for all models, interleaved."""
    each = [feedback_for(name) for name in LEARNERS]
    return [events[turn] for turn in range(max(map(len, each))) for events in each if turn < len(events)]


def comparison(event, catalogue, width):
    """The row of an event's one comparison, and what else it brings, spelled out."""

    def row(item):
        return int(item[1:])

    def members(set_or_item):
        return catalogue.sets[set_or_item] if set_or_item.startswith("s") else np.array([row(set_or_item)])

    match event:
        case Triplet() if width == 3:
            return (row(event.query), row(event.relevant), row(event.irrelevant)), {"weight": 1.0}
        case Triplet():
            return (row(event.query), row(event.relevant), row(event.query), row(event.irrelevant)), {"margin": 1.0}
        case Quadruplet():
            return tuple(map(row, (*event.near, *event.far))), {"margin": event.margin}
        case Pair() if width == 3:
            left, right = row(event.left), row(event.right)
            return ((left, right, left) if event.similar else (left, left, right)), {"weight": 1.0}
        case Pair():
            return (row(event.left), row(event.right)), {"similar": event.similar, "task": event.task}
        case SetJudgement():
            relevant, irrelevant = (tuple(map(members, ids)) for ids in (event.relevant, event.irrelevant))
            return Judgement(np.array([row(name) for name in event.query]), relevant, irrelevant), {}


def learned_directly(name, catalogue, **more):
    """A learner that has learned its feedback, one event at a time and without any worker."""
    learner = LEARNERS[name](dims=dict(catalogue.dims), **options(name), **more)
    learner.start(catalogue.features)
    for event in feedback_for(name):
        row, values = comparison(event, catalogue, learner.width)
        columns = {column: values[column] for column in learner.columns}
        learner.learn_many([row], catalogue.features, **columns)
    return learner
