"""Labels that change meaning at half time: learning online beside retraining each night, and beside no learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift import WRONG, later_labels, triplets
from benchmarks.papers.page import Block, Claim, Grid, Plot, spread
from benchmarks.quality import split
from omdml import LOMDML
from omdml.evaluate import mean_average_precision

Array = NDArray[Any]
TITLE = "Drift: labels that change meaning at half time"
MATHS = "2"
DATA = ("yaleb", "mfeat", "caltech101_20")
SEEDS = range(5)
UNITS = [{"name": name, "seed": seed} for name in DATA for seed in SEEDS]
# Numbers of events: before the meaning changes, in all, and in one night's log.
CHANGE, TOTAL, NIGHT = 50_000, 100_000, 20_000
LOOKS = sorted({*range(0, TOTAL + 1, 5_000), CHANGE + 1_000, CHANGE + 2_500})
# How often a batch model passes over its log.
PASSES = 3
ONLINE, FADELESS, PAPER = "LOMDML", "LOMDML, memory 0", "LOMDML, beta 0.99, memory 0"
WHOLE, LATEST, NONE = "batch, whole log", "batch, last night's log", "none"
STREAMS: dict[str, dict[str, Any]] = {ONLINE: {}, FADELESS: {"memory": 0}, PAPER: {"beta": 0.99, "memory": 0}}
# The number of newest events that a batch model is trained on.
LOGS = {WHOLE: TOTAL, LATEST: NIGHT, NONE: 0}
SHOWN = (45_000, 50_000, 51_000, 55_000, 60_000, 80_000, 100_000)
ABOUT = f"""
This table shows why one would learn online at all. A stream has {TOTAL:,} triplets by label, {WRONG:.0%} of them
inverted. After {CHANGE:,} the labels change their meaning. On yaleb, similar then means the same light and no longer
the same person. The ten classes of mfeat are joined in twos, the 20 of caltech101_20 in fives. mAP is that of the test
queries under the labels that hold from that event on. So before and after the change it measures different questions.

LOMDML learns each event once: with our memory of 10,000 gated events, without it ("memory 0"), and without it and with
the paper's beta. The batch models are LOMDML, too. They are trained again every {NIGHT:,} events, which is called a
night: {PASSES} passes in random order, over the whole log or over its last {NIGHT:,} events. They answer until the next
night. "none" stays at its start, PCA at unit spread. Nothing is tuned: all hyperparameters are defaults. Seeds 0 to
{len(SEEDS) - 1}.
"""
Outcomes = dict[str, dict[str, Array]]  # by set and model: (seeds, looks)


class Case(NamedTuple):
    """A set, labels before and after the change, and the stream of triplets."""

    features: dict[str, Array]
    labels: tuple[Array, Array]
    train: Array
    test: Array
    rows: Array  # (TOTAL, 3)
    seed: int

    def model(self, **options: Any) -> LOMDML:
        """A model that has learned nothing, started from the training items."""
        made = LOMDML({name: x.shape[1] for name, x in self.features.items()}, seed=self.seed, **options)
        made.start({name: x[self.train] for name, x in self.features.items()})
        return made

    def score(self, model: LOMDML, look: int) -> float:
        """MAP of the test queries under the labels in force from this event on."""
        return mean_average_precision(model.metric.embed(self.features), self.labels[look >= CHANGE], self.test)


def run(name: str, seed: int) -> dict[str, list[float]]:
    """MAP at LOOKS of every model."""
    features, before, train, test = split(name, seed)
    after = later_labels(name, before)
    halves = [logged(before, seed, train), logged(after, seed + 100, train)]
    case = Case(features, (before, after), train, test, np.concatenate(halves), seed)
    online = {variant: streamed(case, options) for variant, options in STREAMS.items()}
    return {**online, **{variant: retrained(case, events) for variant, events in LOGS.items()}}


def logged(labels: Array, seed: int, train: Array) -> Array:
    """Half a stream (CHANGE, 3): triplets by label, a share of them inverted."""
    return np.concatenate([triplets(labels, seed + 10 * part, train) for part in range(3)])[:CHANGE]


def streamed(case: Case, options: Mapping[str, Any]) -> list[float]:
    """MAP at LOOKS of a model that learns every event once, as it comes."""
    model, learned, scores = case.model(**options), 0, []
    for look in LOOKS:
        model.learn_many(case.rows[learned:look], case.features)
        scores.append(case.score(model, learned := look))
    return scores


def retrained(case: Case, events: int) -> list[float]:
    """MAP at LOOKS of a model trained every NIGHT events, from the start, on the last ``events``; 0: never."""
    model, scores = case.model(), []
    for look in LOOKS:
        night = events and 0 < look < TOTAL and look % NIGHT == 0
        if night:
            model = fitted(case, case.rows[max(0, look - events) : look])
        scores.append(case.score(model, look) if night or look in (0, CHANGE) else scores[-1])
    return scores


def fitted(case: Case, log: Array) -> LOMDML:
    """A model after some passes over a log, each in another order."""
    model, draw = case.model(), np.random.default_rng(case.seed)
    for _ in range(PASSES):
        model.learn_many(draw.permutation(log), case.features)
    return model


def section(results: list[dict[str, list[float]]]) -> list[Block]:
    """MAP over time, by set and model."""
    of = {name: [result for unit, result in zip(UNITS, results, strict=True) if unit["name"] == name] for name in DATA}
    outcomes = {name: {model: np.array([run[model] for run in runs]) for model in runs[0]} for name, runs in of.items()}
    rows = [
        [name, model, *(spread(runs[:, LOOKS.index(look)]) for look in SHOWN)]
        for name, models in outcomes.items()
        for model, runs in models.items()
    ]
    return [
        ABOUT,
        Grid(
            "mAP of test queries under the labels in force, by events seen",
            ["set", "model", *(f"{look:,}" for look in SHOWN)],
            rows,
        ),
        Plot("drift", "mAP over time", lambda figure: drawn(figure, outcomes), (11, 4.5)),
        "mAP over time: means over the seeds, and their standard deviation. The dotted line is the change.",
        *verdict(outcomes),
    ]


def drawn(figure: Any, outcomes: Outcomes) -> None:
    """Draw a panel for each set, and in it a line for each model.

    Lines are broken at the change. Batch models keep their level from night to night.
    """
    thousands, change = np.array(LOOKS) / 1_000, LOOKS.index(CHANGE)
    for axes, (name, models) in zip(figure.subplots(1, 3), outcomes.items(), strict=True):
        for color, (model, runs) in enumerate(models.items()):
            mean, deviation = runs.mean(axis=0), runs.std(axis=0, ddof=1)
            batch = model in LOGS
            for part in [slice(None)] if batch else [slice(change), slice(change, None)]:
                style = {"color": f"C{color}", "label": model if part.start is None else None}
                axes.plot(thousands[part], mean[part], drawstyle="steps-post" if batch else "default", **style)
                edges = (mean - deviation)[part], (mean + deviation)[part]
                step = "post" if batch else None
                axes.fill_between(thousands[part], *edges, step=step, alpha=0.2, color=f"C{color}", linewidth=0)
        axes.axvline(CHANGE / 1_000, color="black", linestyle=":")
        axes.set(title=name, xlabel="events, thousands", ylabel="mAP")
        axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3)


def verdict(outcomes: Outcomes) -> list[Claim]:
    """The claims of this section, each with whether the run confirms it."""

    def score(model: str, look: int) -> list[float]:
        return [float(outcomes[name][model][:, LOOKS.index(look)].mean()) for name in DATA]

    def ahead(left: list[float], right: list[float]) -> bool:
        return all(mine > other for mine, other in zip(left, right, strict=True))

    before, soon, first = CHANGE - 5_000, CHANGE + 5_000, CHANGE + 10_000
    ends = {model: score(model, TOTAL) for model in (*STREAMS, *LOGS)}
    gained = [mine - other for mine, other in zip(score(ONLINE, before), score(FADELESS, before), strict=True)]
    gap = [mine - other for mine, other in zip(ends[ONLINE], ends[LATEST], strict=True)]
    apart = [abs(mine - other) for mine, other in zip(score(ONLINE, before), score(WHOLE, before), strict=True)]
    early = CHANGE + 2_500
    return [
        Claim(
            f"""Memory lets Hedge's weights change: {CHANGE:,} events after the change LOMDML has
            {by_set(ends[ONLINE])}, and without memory {by_set(ends[FADELESS])}. Before the change memory costs little,
            or helps ({", ".join(f"{value:+.3f}" for value in gained)}).""",
            ahead(ends[ONLINE], ends[FADELESS]) and min(gained) > -0.01,
        ),
        Claim(
            f"""Learning online is the first to follow: 5,000 events after the change it has
            {by_set(score(ONLINE, soon))}. A batch model waits 10,000 events for the night. Then, trained on last
            night's log, it has {by_set(score(LATEST, first))}.""",
            ahead(score(ONLINE, soon), score(LATEST, first)),
        ),
        Claim(
            f"""Training on last night's log comes close in the end: it has {by_set(ends[LATEST])}, and is behind by at
            most {max(gap):.3f}. Training on the whole log does not come close, because most of that log says
            something else: it has {by_set(ends[WHOLE])}.""",
            min(gap) > -0.005 and max(gap) < 0.03 and ahead(ends[LATEST], ends[WHOLE]),
        ),
        Claim(
            f"""As long as labels keep their meaning, one pass online is as good as {PASSES} passes over the whole
            log. Before the change the online learner has {by_set(score(ONLINE, before))}, and the batch model has
            {by_set(score(WHOLE, before))}.""",
            max(apart) < 0.015,
        ),
        Claim(
            f"""On yaleb the two meanings oppose each other: a model that has learned to see persons no longer sees
            the light. For a while it is worse than a model that has learned nothing: {score(ONLINE, early)[0]:.3f} and
            {score(NONE, early)[0]:.3f}, 2,500 events after the change. After 5,000 it is better:
            {score(ONLINE, soon)[0]:.3f} and {score(NONE, soon)[0]:.3f}.""",
            score(ONLINE, early)[0] < score(NONE, early)[0] and score(ONLINE, soon)[0] > score(NONE, soon)[0],
        ),
        Claim(
            f"""With the paper's beta of 0.99 a model loses what it had, even without a change: from
            {by_set(score(PAPER, 5_000), 1)} after 5,000 events to {by_set(score(PAPER, before), 1)} after {before:,}.
            MATHS 2 (c) says why: nearly all the weight goes to one or two modalities.""",
            ahead(score(PAPER, 5_000)[1:], score(PAPER, before)[1:])
            and ahead(score(ONLINE, TOTAL), score(PAPER, TOTAL)),
        ),
    ]


def by_set(scores: list[float], first: int = 0) -> str:
    """One mAP for each data set, as text; ``first`` leaves out the sets before it."""
    return ", ".join(f"{score:.3f} ({name})" for score, name in list(zip(scores, DATA, strict=True))[first:])
