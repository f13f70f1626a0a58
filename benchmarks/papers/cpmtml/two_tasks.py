"""Two tasks on the same images: learners of pairs, chosen on a validation part, and how they retrieve the main one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.page import Grid, spread
from omdml import CPmtML, Learner, MtLMCA, StML, UtML
from omdml.builders import pairs_from_labels
from omdml.evaluate import average_precision, rank_by_distance
from omdml.metrics.coupled import SHARED, CoupledMetric

Array = NDArray[Any]
TASKS = MAIN, AUXILIARY = ("main", "auxiliary")
# The values of K in 1-call@K.
PLACES = (2, 5, 10, 20)
# Measures are the calls at PLACES, then mAP at this place.
MAP = len(PLACES)
ETAS, GAMMAS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1), (0.0, 0.1, 0.25, 0.5, 1.0)
LEAST, MOST = f"eta {ETAS[0]:g},", f"eta {ETAS[-1]:g},"
# Numbers of pairs that are drawn of each task.
DRAWS = (5_000, 20_000)
WPCA, SINGLE, UNION, LMCA, COUPLED = "WPCA", "stML", "utML", "mtLMCA", "CP-mtML"
LEARNERS: dict[str, type[Learner]] = {SINGLE: StML, UNION: UtML, LMCA: MtLMCA, COUPLED: CPmtML}
OTHER = "stML of the auxiliary task"
# What each of CP-mtML's matrices does alone.
PARTS = {SHARED: "L_0 alone", MAIN: "L_1 alone", AUXILIARY: "L_2 alone"}
# What was chosen, its score on the validation part, and its measures on the test part.
Trial = dict[str, Any]
# By method. A method with a gamma has a trial for each one.
Result = dict[str, list[Trial]]


class Case(NamedTuple):
    """Images, their labels in the sense of both tasks, and rows by part."""

    features: dict[str, Array]
    # By task.
    labels: dict[str, Array]
    train: Array
    validation: Array
    test: Array
    seed: int

    def measured(self, metric: CoupledMetric, rows: Array, task: str = MAIN) -> list[float]:
        """1-call@K at PLACES, and mAP, of the main task: each of these rows is searched among the others of them."""
        embedded = metric.embed({name: x[rows] for name, x in self.features.items()}, task)
        labels = self.labels[MAIN][rows]
        hits = labels[rank_by_distance(embedded, np.arange(len(rows)))] == labels[:, None]
        return [*(float(hits[:, :k].any(axis=1).mean()) for k in PLACES), float(average_precision(hits).mean())]


class Feedback(NamedTuple):
    """Pairs in the order in which they are learned."""

    rows: Array  # (T, 2)
    similar: Array
    tasks: Array


class Choice(NamedTuple):
    """A metric, how it was learned, and its score on validation: the mean 1-call@K."""

    metric: CoupledMetric
    setting: str
    score: float


def in_turn(case: Case, counts: Mapping[str, int]) -> Feedback:
    """Pairs of both tasks in turn, drawn at random out of ``counts`` of each (Algorithm 1)."""
    draw, rows, similar = np.random.default_rng(case.seed), [], []
    for place, task in enumerate(TASKS):
        pairs = pairs_from_labels(case.labels[task], counts[task], case.seed + 100 * place, among=case.train)
        index = draw.integers(0, counts[task], DRAWS[-1])
        rows.append(pairs.rows[index])
        similar.append(pairs.similar[index])
    return Feedback(np.stack(rows, axis=1).reshape(-1, 2), np.stack(similar, axis=1).ravel(), np.tile(TASKS, DRAWS[-1]))


def compared(case: Case, counts: Mapping[str, int]) -> Result:
    """Every method's measures on test: at its best eta and length, by gamma if it has one."""
    feedback, result = in_turn(case, counts), {}
    for name, learner in LEARNERS.items():
        started = learner({name: x.shape[1] for name, x in case.features.items()}, tasks=TASKS, seed=case.seed)
        started.start({name: x[case.train] for name, x in case.features.items()})
        options = [{"gamma": gamma} for gamma in GAMMAS] if name in (LMCA, COUPLED) else [{}]
        choices = [chosen(case, feedback, started, **option) for option in options]
        result[name] = [trial(case, choice) for choice in choices]
        if name == SINGLE:
            result[WPCA] = [trial(case, Choice(started.metric, "", 0.0))]
            result[OTHER] = [trial(case, choices[0], AUXILIARY)]
    # CP-mtML is the last one.
    coupled = max(choices, key=lambda choice: choice.score)
    return {**result, **{name: [trial(case, alone(coupled, part))] for part, name in PARTS.items()}}


def chosen(case: Case, feedback: Feedback, started: Learner, **options: float) -> Choice:
    """The best on validation over ETAS and DRAWS."""
    choices = []
    for eta in ETAS:
        model, learned = started.learning_on(tasks=TASKS, eta=eta, seed=case.seed, **options), 0
        for draws in DRAWS:
            part, learned = slice(learned, len(TASKS) * draws), len(TASKS) * draws
            rows, similar, tasks = (column[part] for column in feedback)
            model.learn_many(rows, case.features, similar=similar, task=tasks)
            text = ", ".join([*(f"{name} {value:g}" for name, value in options.items()), f"eta {eta:g}, {draws:,}"])
            metric = model.metric
            choices.append(Choice(metric, text, float(np.mean(case.measured(metric, case.validation)[:MAP]))))
    return max(choices, key=lambda choice: choice.score)


def alone(choice: Choice, part: str) -> Choice:
    """One of the matrices by itself, as the metric of the main task."""
    metric = choice.metric
    return choice._replace(metric=CoupledMetric(metric.dims, {part: metric.matrices[part]}, {MAIN: [part]}))


def trial(case: Case, choice: Choice, task: str = MAIN) -> Trial:
    """What is kept of a choice, with its measures on the test part, which had no say in the choice."""
    return {"setting": choice.setting, "score": choice.score, "test": case.measured(choice.metric, case.test, task)}


def picked(results: Sequence[Result], method: str) -> list[Trial]:
    """A method at the gamma that validation chooses, for each seed."""
    return [max(result[method], key=lambda trial: trial["score"]) for result in results]


def best(results: Sequence[Result], method: str) -> Array:
    """Test measures (seeds, 5) of these."""
    return np.array([trial["test"] for trial in picked(results, method)])


def by_gamma(results: Sequence[Result], method: str) -> Array:
    """The measures on the test part at each gamma: (seeds, gammas, 5)."""
    return np.array([[trial["test"] for trial in result[method]] for result in results])


def rows(results: Sequence[Result], methods: Sequence[str]) -> list[list[str]]:
    """A table's rows: method, 1-call@K in %, mAP, what was chosen."""
    lines = []
    for method in methods:
        result = best(results, method)
        choices = "; ".join(trial["setting"] for trial in picked(results, method))
        measures = [*(spread(100 * result[:, place], 1) for place in range(MAP)), spread(result[:, MAP])]
        lines.append([method, *measures, choices if method in LEARNERS else ""])
    return lines


def ends(results: Sequence[Result]) -> Grid:
    """How many runs choose what lies at an end of its range."""
    marks = (LEAST, MOST, f", {DRAWS[-1]:,}")
    return Grid(
        f"Chosen at an end of the range, in {len(results)} runs",
        ["method", "lowest eta", "highest eta", "most draws"],
        [[method, *(str(choosing(results, method, mark)) for mark in marks)] for method in LEARNERS],
    )


def choosing(results: Sequence[Result], method: str, mark: str) -> int:
    """How many runs choose a setting of this method whose text contains ``mark``."""
    return sum(mark in trial["setting"] for trial in picked(results, method))
