"""What a picture looks like, in numbers: its colors, its edges, its texture.

Each function takes pixels (SIDE, SIDE, 3) and returns a vector. Catalogues store the names of the functions that they
were built with, and these names end in a number. Do not change what a function computes: add one with another number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.streams.describers.pictures import INSTALL, Pixels

Vector = NDArray[np.float64]
SIDE = 96
# Bins of lightness, and of each of the two color axes, which reach from -AXIS to AXIS.
LIGHTNESS_BINS, AXIS_BINS, AXIS = 4, 6, 60.0
ORIENTATIONS, CELL = 9, 16
# Radius and number of neighbours of the two kinds of binary pattern.
PATTERNS = ((1, 8), (2, 16))


def color(pixels: Pixels) -> Vector:
    """How much of each color there is in the whole picture and in each quarter: 5 histograms of 144 bins in CIELAB.

    The bins hold square roots of shares, so that the Euclidean distance of two pictures is Hellinger's.
    """
    lab = _skimage("color").rgb2lab(pixels)
    lightness = _bins(lab[..., 0] / 100, LIGHTNESS_BINS)
    a, b = (_bins((lab[..., axis] + AXIS) / (2 * AXIS), AXIS_BINS) for axis in (1, 2))
    return _shares((lightness * AXIS_BINS + a) * AXIS_BINS + b, LIGHTNESS_BINS * AXIS_BINS**2)


def edges(pixels: Pixels) -> Vector:
    """Histograms of oriented gradients (Dalal and Triggs 2005), 9 orientations, 6 x 6 cells in blocks of 2 x 2: 900."""
    grey = pixels.mean(axis=-1)
    histogram: Vector = _skimage("feature").hog(grey, ORIENTATIONS, (CELL, CELL), (2, 2), block_norm="L2-Hys")
    return histogram


def texture(pixels: Pixels) -> Vector:
    """Uniform local binary patterns (Ojala et al. 2002) of two radii, whole and in quarters: 5 x (10 + 18) = 140."""
    grey = pixels.mean(axis=-1).astype(np.uint8)
    pattern = _skimage("feature").local_binary_pattern
    parts = [_shares(pattern(grey, n, radius, "uniform").astype(np.int64), n + 2) for radius, n in PATTERNS]
    return np.concatenate(parts)


# The functions by name and number.
LOOKS: dict[str, Callable[[Pixels], Vector]] = {"color-1": color, "edges-1": edges, "texture-1": texture}


def modality_of(look: str) -> str:
    """The modality that a look computes: its name without the number."""
    return look.rpartition("-")[0]


def _bins(shares: Vector, count: int) -> NDArray[np.int64]:
    return np.clip((shares * count).astype(np.int64), 0, count - 1)


def _shares(numbers: NDArray[np.int64], count: int) -> Vector:
    """Square roots of how often each number occurs, in the whole and in each quarter."""
    counts = [np.bincount(part.ravel(), minlength=count) / part.size for part in _parts(numbers)]
    return np.sqrt(np.concatenate(counts))


def _parts(numbers: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    half = SIDE // 2
    yield numbers
    yield from (numbers[y : y + half, x : x + half] for y in (0, half) for x in (0, half))


def _skimage(module: str) -> Any:
    try:
        from skimage import color as skimage_color
        from skimage import feature
    except ImportError as error:
        raise CatalogueError(f"describing pictures needs scikit-image, which is not installed: {INSTALL}") from error
    return {"color": skimage_color, "feature": feature}[module]
