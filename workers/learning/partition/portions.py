"""How many models are written to the store together: enough to share a round trip, few enough to watch the time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import TypeVar

from omdml.workers.model.owned_model import OwnedModel

PORTION = 50
# How many bytes of models in memory make a portion.
PORTION_BYTES = 4_000_000
Owner = TypeVar("Owner")


def portions(models: list[OwnedModel], left: Callable[[], float] = lambda: math.inf) -> Iterator[list[OwnedModel]]:
    """Models in order, in portions that are written to the store together: a few at a time, within the bytes left."""
    while models:
        count, room = 0, min(PORTION_BYTES, left())
        while count < min(PORTION, len(models)) and (room > 0 or not count):
            room -= models[count].size
            count += 1
        yield models[:count]
        models = models[count:]


def by_owner(
    changed: list[tuple[OwnedModel, Owner]], left: Callable[[], float]
) -> Iterator[tuple[Owner, list[OwnedModel]]]:
    """Models in order, in portions of one partition each that are written together."""
    for _, neighbours in groupby(changed, key=lambda pair: id(pair[1])):
        models, owners = zip(*neighbours, strict=True)
        for portion in portions(list(models), left):
            yield owners[0], portion
