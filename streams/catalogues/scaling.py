"""How raw vectors become the numbers that learning sees: fitted once, when a catalogue is built, and stored with it.

Every scaling computes in float64 and row by row: items of one catalogue get the same bytes however they were read.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError

Floats = NDArray[np.float64]


class MinMax(msgspec.Struct, frozen=True, eq=False, tag_field="kind", tag="minmax"):
    """Scales each column to [0, 1] over the items it was fitted on. Later items may lie outside: nothing is clipped.

    A column that was constant in these items says nothing, so each of its values becomes 0, later ones too.
    """

    low: Floats
    high: Floats

    def fitted(self, vectors: Floats) -> MinMax:
        """The scaling that has seen these vectors (n, d) too."""
        return MinMax(np.minimum(self.low, vectors.min(axis=0)), np.maximum(self.high, vectors.max(axis=0)))

    def apply(self, vectors: Floats) -> Floats:
        """Vectors (n, d), scaled; the input is not changed."""
        spread = self.high - self.low
        return np.divide(vectors - self.low, spread, out=np.zeros_like(vectors), where=spread > 0)


class UnitNorm(msgspec.Struct, frozen=True, eq=False, tag_field="kind", tag="unit"):
    """Scales each vector to an L2 norm of 1; a vector of zeros stays as it is."""

    def fitted(self, vectors: Floats) -> UnitNorm:
        """Return itself: there is nothing to fit."""
        return self

    def apply(self, vectors: Floats) -> Floats:
        """Vectors (n, d), scaled; the input is not changed."""
        # The largest number is divided out first, because squares overflow and vanish.
        largest = np.abs(vectors).max(axis=1, keepdims=True)
        safe = vectors / np.where(largest > 0, largest, 1.0)
        norm = np.sqrt((safe * safe).sum(axis=1, keepdims=True))
        return safe / np.where(norm > 0, norm, 1.0)


class Unscaled(msgspec.Struct, frozen=True, eq=False, tag_field="kind", tag="none"):
    """Leaves vectors as they are: a scaling for those that are scaled already."""

    def fitted(self, vectors: Floats) -> Unscaled:
        """Return itself: there is nothing to fit."""
        return self

    def apply(self, vectors: Floats) -> Floats:
        """The same vectors (n, d), not a copy."""
        return vectors


Scaling = MinMax | UnitNorm | Unscaled
SCALINGS = ("minmax", "unit", "none")


def unfitted(kind: str, dim: int) -> Scaling:
    """The scaling of this name for vectors of ``dim`` numbers, before it saw one; CatalogueError for another name."""
    match kind:
        case "minmax":
            return MinMax(np.full(dim, np.inf), np.full(dim, -np.inf))
        case "unit":
            return UnitNorm()
        case "none":
            return Unscaled()
    raise CatalogueError(f"scaling {kind!r}, expected one of {', '.join(SCALINGS)}")


def scaled(scaling: Scaling, vectors: Floats) -> NDArray[np.float32]:
    """Finite vectors (n, d), scaled; what float32 cannot hold becomes infinite (see :func:`not_finite`)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(scaling.apply(vectors), dtype=np.float32)


def not_finite(vectors: NDArray[Any]) -> tuple[int, int] | None:
    """Row and column of the first value that is NaN or infinite.

    Examples
    --------
    >>> not_finite(np.array([[1.0, 2.0], [3.0, np.inf]]))
    (1, 1)
    """
    finite = np.isfinite(vectors)
    if finite.all():
        return None
    row, column = np.argwhere(~finite)[0]
    return int(row), int(column)


def scaled_checked(name: str, scaling: Scaling, dim: int, raw: NDArray[Any]) -> NDArray[np.float32]:
    """Raw vectors (n, dim) of a modality, scaled; CatalogueError if the shape is wrong or a value is not finite."""
    try:
        vectors = np.asarray(raw, np.float64)
    except (TypeError, ValueError) as error:
        raise CatalogueError(f"modality {name!r}: not numbers (n, {dim}): {error}") from error
    if vectors.ndim != 2 or vectors.shape[1] != dim:
        raise CatalogueError(f"modality {name!r}: shape {vectors.shape}, expected (n, {dim})")
    result = scaled(scaling, vectors)
    if place := not_finite(vectors) or not_finite(result):
        # A single row is an item or a query: whoever catches this error names it.
        where = f"column {place[1]}" if len(vectors) == 1 else f"row {place[0]}, column {place[1]}"
        raise CatalogueError(f"modality {name!r}: {where} is {vectors[place]}, which makes no finite float32")
    return result
