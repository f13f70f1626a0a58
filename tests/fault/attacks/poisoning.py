"""Hostile clicks against a worker with a guard: senders know the code and every offset, but not the store's secret."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.feedback.guard import Data, disturbed
from benchmarks.feedback.hostile import KINDS, Kind
from tests.fault.attacks.attack import Attack, Measured

# Numbers of events before an attack, and during it.
BEFORE, DISTURBED = 6_000, 4_000
# The most mAP that may be lost, and the most events in a row for which metrics may be refused.
LOST, REFUSED = 0.02, 2_500
# This is odd, so that a median is one of the runs: without attacks, live mAP at the end differs by up to 0.1.
SEEDS = 3
QUICK = ("three items, 30 %",)
# mAP that is lost, if the guard cannot keep it within the bound (docs/promises.md, deploy/OPERATIONS.md).
NAMED_LIMITS = {"three items, 30 %": 0.03}
ITEMS, LABELS, DIMS = 1_000, 10, {"shape": 160, "noise": 80}
# Of items around the centre of their label: with 2.0 the default learner is right about all, and nothing could be lost.
SPREAD = 3.0


def shop(seed: int = 0) -> Data:
    """Items in clusters that one modality shows and the other does not. People click on all but the 60 test queries."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, LABELS, ITEMS)
    centres = draw.normal(0, 1, (LABELS, DIMS["shape"]))
    features = {
        "shape": centres[labels] + draw.normal(0, SPREAD, (ITEMS, DIMS["shape"])),
        "noise": draw.normal(0, 1, (ITEMS, DIMS["noise"])),
    }
    order = draw.permutation(ITEMS)
    return Data({name: x.astype(np.float32) for name, x in features.items()}, labels, order[60:], order[:60])


def poison(kind: Kind, folder: Path) -> Measured:
    """Poison models that have learned from sound clicks, one a seed: the middle seed, and the most refused."""
    # What comes after the disturbance is no part of the bound.
    outcomes = [disturbed(kind, shop(), seed, before=BEFORE, length=DISTURBED, after=0) for seed in range(SEEDS)]
    middle = sorted(outcomes, key=lambda outcome: outcome.lost)[SEEDS // 2]
    refused = max(outcome.refused for outcome in outcomes)
    value = f"mAP {middle.clean:.3f} -> {middle.ended:.3f}, {refused:,} events"
    return Measured(value, middle.lost <= lost(kind) and refused <= REFUSED)


def lost(kind: Kind) -> float:
    """How far live mAP may fall."""
    return NAMED_LIMITS.get(kind.name, LOST)


# Kinds with a limit are left out: nothing is promised of them.
ATTACKS = [
    Attack(
        kind.name,
        f"live mAP falls by at most {lost(kind)}, and sound metrics are refused for at most {REFUSED:,} events",
        partial(poison, kind),
        quick=kind.name in QUICK,
        named_limit=kind.name in NAMED_LIMITS,
    )
    for kind in KINDS
    if not kind.limit
]
