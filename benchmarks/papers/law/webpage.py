"""A news page that is drawn every hour, in place of LAW's crawled sites: its pixels, and whether the news changed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Pixels of a side, cells of a side, and directions of an edge.
SIDE, GRID, DIRECTIONS = 120, 10, 8
HOURS = 50 * 24
# The chance that an hour has a new headline.
NEWS = 0.2
# Numbers of advertisements, which take turns, and of entries of the menu, one of which is lit.
ADVERTISEMENTS, ENTRIES = 6, 12
# Deviation of the noise that rendering adds to each pixel.
NOISE = 0.01
REGIONS = {
    "headline": (slice(24, 72), slice(12, 84)),
    "menu": (slice(0, 18), slice(0, 120)),
    "advertisement": (slice(24, 108), slice(90, 120)),
}


class Page(NamedTuple):
    """A simulated page in hourly versions."""

    pixels: Array  # (hours, 120, 120) in about [0, 1]
    news: Array  # (hours - 1,) whether the headline differs from the hour before


def page(seed: int, renewed: float) -> Page:
    """Fifty days: headlines never come back, advertisements do, the lit entry of the menu wanders; the rest is blank.

    ``renewed`` is the chance that an hour shows another advertisement: at 1 every visit sees a random one.
    """
    draw = np.random.default_rng(seed)
    news, drawn_anew = draw.random(HOURS) < NEWS, draw.random(HOURS) < renewed
    rotation = [text(draw, "advertisement", 7) for _ in range(ADVERTISEMENTS)]
    headline, menu, shown = text(draw, "headline", 6), text(draw, "menu", 3), 0
    pixels = np.ones((HOURS, SIDE, SIDE))
    for hour, canvas in enumerate(pixels):
        headline = text(draw, "headline", 6) if news[hour] else headline
        shown = draw.integers(ADVERTISEMENTS) if drawn_anew[hour] else shown
        for name, drawn in (("headline", headline), ("menu", menu), ("advertisement", rotation[shown])):
            canvas[REGIONS[name]] = drawn
        lit = draw.integers(ENTRIES) * SIDE // ENTRIES
        canvas[REGIONS["menu"][0], lit : lit + SIDE // ENTRIES] *= 0.6
    return Page(pixels + draw.normal(0, NOISE, pixels.shape), news[1:])


def text(draw: np.random.Generator, region: str, size: int) -> Array:
    """Something to look at in a region: blocks of random darkness, ``size`` pixels a side."""
    height, width = (part.stop - part.start for part in REGIONS[region])
    blocks = draw.random((-(-height // size), -(-width // size)))
    return np.kron(blocks, np.ones((size, size)))[:height, :width]


def descriptors(pixels: Array) -> Array:
    """(hours, 800): strength of edges by direction in each of 10 x 10 cells, cell by cell, of GIST's kind."""
    down, across = np.gradient(pixels, axis=(1, 2))
    strength = np.hypot(down, across)
    direction = (np.arctan2(down, across) / np.pi * DIRECTIONS + 0.5).astype(int) % DIRECTIONS
    size = SIDE // GRID
    cells = [
        (strength * (direction == k)).reshape(-1, GRID, size, GRID, size).mean(axis=(2, 4)) for k in range(DIRECTIONS)
    ]
    return np.stack(cells, axis=-1).reshape(len(pixels), -1)


def inside(region: str) -> Array:
    """(100,) share of each cell that lies in a region."""
    mask = np.zeros((SIDE, SIDE))
    mask[REGIONS[region]] = 1.0
    size = SIDE // GRID
    return mask.reshape(GRID, size, GRID, size).mean(axis=(1, 3)).ravel()
