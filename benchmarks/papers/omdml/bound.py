"""OMDML Theorem 4.1: what Hedge loses beside its bound, and mistakes beside the theorem's (MATHS 10)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.omdml.retrieval import Case, prepared
from benchmarks.papers.page import Block, Claim, Grid, spread
from omdml import LOMDML, OMDML
from omdml.builders import from_labels

Array = NDArray[Any]
TITLE = "OMDML Theorem 4.1: mistakes and their bound"
MATHS = "10"
DATA = ("caltech101_20", "mfeat", "leaves100")
SEEDS = range(5)
UNITS = [{"seed": seed} for seed in SEEDS]
# TRIPLETS are learned on every set. The made-up set has ITEMS items in CLASSES classes.
TRIPLETS, ITEMS, CLASSES = 10_000, 600, 3
# The paper's discount, and how much larger the noise is than what matters.
BETA, LOUD = 0.99, 1_000.0
IDENTITY, UNIT = "M = I", "unit spread"
ABOUT = f"""
OMDML weights the descriptors by Hedge. Before a gated triplet t the weight of descriptor i is theta_i, and z_i is 1 if
descriptor i alone orders it wrongly, otherwise 0. Hedge's loss is sum_t sum_i theta_i z_i. It is at most (ln(1/beta)
min_i sum_t z_i + ln m) / (1 - beta), for m descriptors. If the weights forget, as by our default, both sums fade (MATHS
10). Theorem 4.1 says that the combination of all descriptors makes at most twice as many mistakes as this bound.

We make one pass over {TRIPLETS:,} triplets of training labels. All hyperparameters are defaults, except the discount
beta: our default, the paper's fixed {BETA:g}, and sqrt T / (sqrt T + sqrt ln m), which the theorem advises. The sets
are not the paper's. LOMDML learns the real ones. The theorem is about OMDML; for LOMDML the paper derives "the similar
result". The made-up set has {CLASSES} classes, a descriptor that tells them apart (unit vectors times 3, deviation
0.3), and one of noise with deviation {LOUD:,.0f}. OMDML learns it from M = I, as in the paper, and from a start of unit
spread, as by our default. Seeds 0 to {len(SEEDS) - 1}.
"""
Result = dict[str, dict[str, float]]


def run(seed: int) -> Result:
    """What Hedge lost and could lose at most, and mistakes, by set and settings."""
    results = {}
    for name in DATA:
        case = prepared(name, seed, TRIPLETS)
        root, other = math.sqrt(TRIPLETS), math.sqrt(math.log(len(case.features)))
        settings: dict[str, dict[str, float]] = {
            "our default": {},
            f"beta {BETA:g}": {"beta": BETA, "memory": 0},
            "beta advised": {"beta": root / (root + other), "memory": 0},
        }
        for setting, options in settings.items():
            results[f"{name}, LOMDML, {setting}"] = measured(case.model(LOMDML, case.features, **options), case)
    case = loud(seed)
    identity = {name: np.eye(x.shape[1]) for name, x in case.features.items()}
    for start, init in ((IDENTITY, identity), (UNIT, "identity")):
        model = case.model(OMDML, case.features, beta=BETA, memory=0, init=init, dtype="float64")
        results[made_up(start)] = measured(model, case)
    return results


def loud(seed: int) -> Case:
    """Classes that one descriptor tells apart, beside noise that is much larger."""
    draw = np.random.default_rng(seed)
    labels, rows = draw.integers(0, CLASSES, ITEMS), np.arange(ITEMS)
    features = {
        "good": 3 * np.eye(CLASSES)[labels] + draw.normal(0, 0.3, (ITEMS, CLASSES)),
        "noise": LOUD * draw.standard_normal((ITEMS, 8)),
    }
    return Case(features, labels, from_labels(labels, TRIPLETS, seed), rows, rows, rows, seed)


def made_up(start: str) -> str:
    """The name of a row of the table."""
    return f"made up, OMDML from {start}, beta {BETA:g}"


def measured(model: Any, case: Case) -> dict[str, float]:
    """Hedge's loss and bound, and mistakes, after one pass."""
    mistakes = model.learn_many(case.rows, case.features).mistakes
    return {"loss": model.hedge_loss, "bound": model.hedge_loss_bound, "mistakes": mistakes, "faded": model.memory > 0}


def section(results: list[Result]) -> list[Block]:
    """Losses and mistakes beside their bounds; a faded bound says nothing about all mistakes."""
    rows = []
    for name in results[0]:
        runs = [result[name] for result in results]
        loss, bound, mistakes = (spread((run[what] for run in runs), 0) for what in ("loss", "bound", "mistakes"))
        rows.append(
            [name, loss, bound, mistakes, "" if runs[0]["faded"] else spread((allowed(run) for run in runs), 0)]
        )
    columns = ["set, learner, discount", "Hedge's loss", "its bound", "mistakes", "the theorem's bound"]
    return [ABOUT, Grid(f"After {TRIPLETS:,} triplets", columns, rows), *verdict(results)]


def allowed(run: dict[str, float]) -> float:
    """The bound of the theorem on the number of mistakes."""
    return 2 * run["bound"]


def verdict(results: list[Result]) -> list[Claim]:
    """The claims of this section, each with whether the run confirms it."""
    everywhere = [run for result in results for run in result.values()]
    real = [run for result in results for name, run in result.items() if name.startswith(DATA) and not run["faded"]]
    noise, spread_out = ([result[made_up(start)] for result in results] for start in (IDENTITY, UNIT))
    share = max(entry["loss"] / entry["bound"] for entry in everywhere)
    return [
        Claim(
            f"""Hedge's loss is below its bound in every run: it is at most {share:.0%} of it.""",
            all(entry["loss"] <= entry["bound"] for entry in everywhere),
        ),
        Claim(
            f"""On the real sets mistakes are below the theorem's bound, too: they are at most
            {max(entry["mistakes"] / allowed(entry) for entry in real):.0%} of it.""",
            all(entry["mistakes"] <= allowed(entry) for entry in real),
        ),
        Claim(
            f"""But the theorem, which asks nothing of the features' scale, does not hold. If the noise is
            {LOUD:,.0f} times as large and M = I, OMDML makes {np.mean([entry["mistakes"] for entry in noise]):.0f}
            mistakes, and the theorem allows {np.mean([allowed(run) for run in noise]):.0f}. Hedge bounds what a
            vote of the descriptors loses. But distances are summed, so a small weight times a large distance still
            decides. From a start of unit spread there are
            {np.mean([entry["mistakes"] for entry in spread_out]):.0f} mistakes.""",
            all(entry["mistakes"] > allowed(entry) for entry in noise)
            and all(entry["mistakes"] < allowed(entry) for entry in spread_out),
            agrees=False,
        ),
    ]
