"""How many models are written to the store together: enough to share a round trip, few enough to watch the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

from omdml.workers.model.owned_model import OwnedModel

PORTION = 50
# How many bytes of models in memory make a portion.
PORTION_BYTES = 4_000_000
Owner = TypeVar("Owner")


def portions(models: Iterable[OwnedModel], left: Callable[[], float] = lambda: math.inf) -> Iterator[list[OwnedModel]]:
    """Models in order, in portions that are written to the store together: a few at a time, within the bytes left."""
    portion, room = [], min(PORTION_BYTES, left())
    for model in models:
        portion.append(model)
        room -= model.size
        if len(portion) == PORTION or room <= 0:
            yield portion
            portion, room = [], min(PORTION_BYTES, left())
    if portion:
        yield portion


def by_owner(
    changed: Iterable[tuple[OwnedModel, Owner]], left: Callable[[], float]
) -> Iterator[tuple[Owner, list[OwnedModel]]]:
    """Models in order, in portions of one partition each that are written together."""
    for owner, neighbours in groupby(changed, key=itemgetter(1)):
        for portion in portions((model for model, _ in neighbours), left):
            yield owner, portion
