"""Pictures of digits, altered copies of them, and heterogeneous descriptors: what stands in for RANK's tattoos."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from benchmarks.quality import data_folder

Array = NDArray[Any]
HEIGHT, WIDTH, WHITE = 16, 15, 6.0
DIRECTIONS = 8


def pictures() -> Array:
    """(2000, 16, 15) in [0, 1]: the digits of mfeat."""
    with np.load(data_folder() / "mfeat.npz") as data:
        return np.asarray(data["X_pix"], float).reshape(-1, HEIGHT, WIDTH) / WHITE


def stretched(picture: Array, across: float, down: float, angle: float) -> Array:
    """Scaled about its middle, then turned by ``angle`` (radians)."""
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    back = np.diag([1 / down, 1 / across]) @ turn
    middle = (np.array(picture.shape) - 1) / 2
    return ndimage.affine_transform(picture, back, middle - back @ middle, order=1)


ALTERATIONS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "blur": lambda x, draw: ndimage.gaussian_filter(x, draw.uniform(0.5, 1.3)),
    "aspect": lambda x, draw: stretched(x, draw.uniform(0.7, 1.3), draw.uniform(0.7, 1.3), 0.0),
    "light": lambda x, draw: np.clip(x * draw.uniform(0.4, 1.0) + draw.uniform(0.0, 0.3), 0, 1),
    "noise": lambda x, draw: np.clip(x + draw.normal(0, draw.uniform(0.05, 0.3), x.shape), 0, 1),
    "tone": lambda x, draw: x ** draw.uniform(0.4, 2.5),
    "rotation": lambda x, draw: stretched(x, 1.0, 1.0, draw.uniform(-0.35, 0.35)),
}


def altered(originals: Array, count: int, draw: np.random.Generator) -> tuple[Array, Array]:
    """``count`` altered copies (count, 16, 15) of random originals, and which original each is of."""
    of = draw.integers(0, len(originals), count)
    kinds = draw.choice(list(ALTERATIONS), count)
    return np.stack([ALTERATIONS[kind](originals[i], draw) for i, kind in zip(of, kinds, strict=True)]), of


def described(images: Array) -> Array:
    """Descriptors (n, 278) of different kinds, as the paper's: tone, edges, texture, shape, moments."""
    flat = images.reshape(len(images), -1)
    tone = np.stack([((flat >= low) & (flat < low + 1 / 16 + 1e-9)).mean(axis=1) for low in np.arange(16) / 16], axis=1)
    coarse = images[:, :, :-1].reshape(-1, 8, 2, 7, 2).mean(axis=(2, 4)).reshape(len(images), -1)
    profiles = np.concatenate([images.mean(axis=1), images.mean(axis=2)], axis=1)
    return np.concatenate([tone, coarse, profiles, edges(images), correlogram(images), moments(images)], axis=1)


def edges(images: Array) -> Array:
    """Strength of edges by direction in 4 x 3 cells: (n, 96), each picture's adding up to 1."""
    down, across = np.gradient(images, axis=(1, 2))
    strength = np.hypot(down, across)
    direction = (np.arctan2(down, across) / np.pi * DIRECTIONS).astype(int) % DIRECTIONS
    cells = [(strength * (direction == k)).reshape(-1, 4, 4, 3, 5).sum(axis=(2, 4)) for k in range(DIRECTIONS)]
    result = np.stack(cells, axis=-1).reshape(len(images), -1)
    return result / np.maximum(result.sum(axis=1, keepdims=True), 1e-12)


def correlogram(images: Array) -> Array:
    """Share of neighbours at distance 1, 3, 5, down and across, of the same tone out of 12: (n, 72)."""
    tone = np.minimum((images * 12).astype(int), 11)
    parts = []
    for step in (1, 3, 5):
        for here, there in ((tone[:, step:], tone[:, :-step]), (tone[:, :, step:], tone[:, :, :-step])):
            parts += [((here == k) & (there == k)).mean(axis=(1, 2)) for k in range(12)]
    return np.stack(parts, axis=1)


def moments(images: Array) -> Array:
    """Central moments of second and third order, free of scale: (n, 7)."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(float)
    mass = np.maximum(images.sum(axis=(1, 2)), 1e-12)
    dy = y - ((images * y).sum(axis=(1, 2)) / mass)[:, None, None]
    dx = x - ((images * x).sum(axis=(1, 2)) / mass)[:, None, None]
    orders = ((2, 0), (1, 1), (0, 2), (3, 0), (2, 1), (1, 2), (0, 3))
    return np.stack([(images * dy**p * dx**q).sum(axis=(1, 2)) / mass ** (1 + (p + q) / 2) for p, q in orders], axis=1)
