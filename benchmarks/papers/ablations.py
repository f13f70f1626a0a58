"""What each departure from OMDML's Algorithm 2 is worth (MATHS 2): switched off alone, on four sets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.papers.page import Block, Claim, Grid, Plot, listed, spread
from benchmarks.quality import paper_start, split
from omdml import LOMDML
from omdml.comparisons import from_labels
from omdml.evaluate import mean_average_precision

Array = NDArray[Any]
TITLE = "Ablations: our departures from OMDML's Algorithm 2"
DATA = ("caltech101_20", "mfeat", "leaves100", "yaleb")
SEEDS = range(5)
UNITS = [{"name": name, "seed": seed} for name in DATA for seed in SEEDS]
TRIPLETS, AVERAGE = 50_000, 5_000
ETAS, DEFAULT = (0.001, 0.003, 0.01, 0.03, 0.1), 0.01
OWN_SCALE, FADELESS, FIXED = {"unit": False}, {"beta": 0.99, "memory": 0}, {"step": "ogd"}
ALL, SCALE, DISCOUNT, STEP, LAST, PAPER = (
    "all four", "start at its own scale", "beta 0.99, never fading", "fixed rate", "no averaging (our default)",
    "none of the four (the paper)",
)  # fmt: skip
VARIANTS: dict[str, dict[str, Any]] = {
    ALL: {"average": AVERAGE},
    SCALE: {"average": AVERAGE, **OWN_SCALE},
    DISCOUNT: {"average": AVERAGE, **FADELESS},
    STEP: {"average": AVERAGE, **FIXED},
    LAST: {},
    PAPER: {**OWN_SCALE, **FADELESS, **FIXED},
}


def run(name: str, seed: int) -> dict[str, Any]:
    """MAP on validation and test queries, and mistakes, of every variant at every eta."""
    features, labels, train, test = split(name, seed)
    validation = np.setdiff1d(np.arange(len(labels)), np.concatenate([train, test]))
    triplets = from_labels(labels, TRIPLETS, seed, among=train)
    sample = {modality: x[train] for modality, x in features.items()}
    own = paper_start(features, train, seed)
    found: dict[str, Any] = {}
    for variant, options in VARIANTS.items():
        kept = {key: value for key, value in options.items() if key != "unit"}
        init = "pca" if options.get("unit", True) else own
        found[variant] = []
        for eta in ETAS:
            model = LOMDML({one: x.shape[1] for one, x in features.items()}, eta=eta, init=init, seed=seed, **kept)
            model.start(sample)
            mistakes = mistaken(model, triplets, features)
            embedded = model.metric.embed(features)
            sound = math.isfinite(mistakes) and np.isfinite(embedded).all()
            scores = [mean_average_precision(embedded, labels, rows) if sound else 0.0 for rows in (validation, test)]
            found[variant].append([*scores, mistakes])
    return found


def mistaken(model: LOMDML, triplets: Array, features: dict[str, Array]) -> float:
    """Triplets that were the wrong way round as they came; NaN where learning was refused because it diverged."""
    try:
        return float(model.learn_many(triplets, features).mistakes)
    except Exception as error:
        if getattr(error, "reason", "") != "diverged":
            raise
        return math.nan


def section(results: list[dict[str, Any]]) -> list[Block]:
    """Not written yet."""
    return []
