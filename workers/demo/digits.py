"""Handwritten digits, described in five ways: the demo's items.

scikit-learn comes with 1,797 pictures of 8 x 8 pixels, 0 to 16, by 43 writers (UCI, Optical Recognition of Handwritten
Digits). Every descriptor takes pictures (n, 8, 8) in [0, 1] and returns a matrix (n, d).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import fft, ndimage

from omdml.errors import ConfigurationError
from omdml.streams.catalogues.building.build import build_catalogue

Array = NDArray[Any]
SIDE = 8
# In the pictures that people see, each pixel becomes a square with this side.
SCALE = 8
ORIENTATIONS = 8
# Side in pixels of the cells in which gradients are summed.
CELL = 2
# Ranges of rows, and of columns, in which patterns are counted.
PATTERN_WINDOWS = ((0, 3), (2, 6), (5, 8))
# Differences of ink up to this make no pattern. Full ink is 1.
NOISE = 0.05
# The neighbours of (1, 1), clockwise.
AROUND = ((0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (1, 0))


class Digits(NamedTuple):
    """The digits.

    ``labels`` says what each shows. ``features`` has a matrix (n, d) for each modality. ``pictures`` (n, 8, 8) holds
    ink from 0 to 1. ``sets`` has the item ids of each set id.
    """

    ids: list[str]
    labels: list[str]
    features: dict[str, Array]
    pictures: Array
    sets: Mapping[str, Sequence[str]] = {}

    @property
    def name(self) -> str:
        return "digits"

    @property
    def first_query(self) -> str:
        """A two, among twos and eights."""
        return "digit-0051"

    def with_sets(self, sets: Mapping[str, Sequence[str]]) -> Digits:
        return self._replace(sets=sets)

    def build(self, target: Path) -> None:
        build_catalogue(target, self.features, ids=self.ids, sets=self.sets, mapped=True)

    def write_pictures(self, folder: Path) -> None:
        """Write a file ``ID.png`` for each digit, dark on white."""
        folder.mkdir()
        larger = ndimage.zoom(self.pictures, (1, SCALE, SCALE), order=1, grid_mode=True, mode="nearest")
        for name, ink in zip(self.ids, larger, strict=True):
            (folder / f"{name}.png").write_bytes(png((255 * (1 - ink)).astype(np.uint8)))

    def write_attributes(self, path: Path) -> None:
        """Write what each digit is, and how much ink it holds."""
        inks = self.pictures.mean(axis=(1, 2)).tolist()
        with path.open("wb") as file:
            for name, label, ink in zip(self.ids, self.labels, inks, strict=True):
                file.write(msgspec.json.encode({"id": name, "digit": label, "ink": round(ink, 3)}) + b"\n")


def load_digits() -> Digits:
    """Load and describe all 1,797 digits; raises ConfigurationError if scikit-learn is not installed."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise ConfigurationError("the digits come with scikit-learn: pip install 'omdml[demo]'")
    # Each row has the ink of a picture and what it shows. Importing scikit-learn would take 1.4 s of processor time.
    table = np.loadtxt(Path(package.origin).with_name("datasets") / "data/digits.csv.gz", delimiter=",")
    pictures = table[:, :-1].reshape(-1, SIDE, SIDE) / 16.0
    ids = [f"digit-{row:04d}" for row in range(len(pictures))]
    labels = [str(int(digit)) for digit in table[:, -1]]
    return Digits(ids, labels, {name: describe(pictures) for name, describe in DESCRIPTORS.items()}, pictures)


def png(grey: NDArray[np.uint8]) -> bytes:
    """A picture (height, width) of grey levels as a PNG file (ISO/IEC 15948)."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width = grey.shape
    # Each row begins with the number of its filter; 0 means no filter.
    rows = np.pad(grey, ((0, 0), (1, 0))).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(*part) for part in ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    )


def pixels(pictures: Array) -> Array:
    """The ink of each pixel, row by row: 64."""
    return pictures.reshape(len(pictures), -1)


def gradients(pictures: Array) -> Array:
    """Histograms of oriented gradients (Dalal and Triggs 2005): 8 orientations in each of 4 x 4 cells, 128.

    With central differences ``g = (dx, dy)`` (beyond the border there is no ink), a pixel adds ``|g|`` to its cell,
    shared between the two orientations next to ``atan2(dy, dx)`` in proportion to their closeness.
    """
    padded = np.pad(pictures, ((0, 0), (1, 1), (1, 1)))
    dx = (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) / 2
    dy = (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) / 2
    angle = (np.arctan2(dy, dx) / (2 * np.pi) * ORIENTATIONS) % ORIENTATIONS
    away = np.abs(angle[:, None] - np.arange(ORIENTATIONS)[:, None, None])
    share = np.maximum(0, 1 - np.minimum(away, ORIENTATIONS - away))
    cells = SIDE // CELL
    votes = (share * np.hypot(dx, dy)[:, None]).reshape(-1, ORIENTATIONS, cells, CELL, cells, CELL)
    summed: Array = votes.sum(axis=(3, 5)).reshape(len(pictures), -1)
    return summed


def projections(pictures: Array) -> Array:
    """The ink of each of 8 rows, 8 columns, 15 diagonals and 15 counter-diagonals: 46."""
    steps = range(1 - SIDE, SIDE)
    diagonals = [np.trace(side, step, 1, 2) for side in (pictures, pictures[:, :, ::-1]) for step in steps]
    return np.concatenate([pictures.sum(axis=1), pictures.sum(axis=2), np.stack(diagonals, axis=1)], axis=1)


def patterns(pictures: Array) -> Array:
    """Local binary patterns (Ojala et al. 2002, rotation invariant and uniform): counts of 10 in 3 x 3 windows, 90.

    A pixel's pattern says which of its 8 neighbours hold more ink than it does. If these follow one another around it,
    the pattern is their number (0 to 8), otherwise it is 9.
    """
    padded = np.pad(pictures, ((0, 0), (1, 1), (1, 1)))
    neighbours = [padded[:, row : row + SIDE, column : column + SIDE] for row, column in AROUND]
    more = np.stack(neighbours, axis=-1) > pictures[..., None] + NOISE
    changes = (more != np.roll(more, 1, axis=-1)).sum(axis=-1)
    pattern = np.where(changes <= 2, more.sum(axis=-1), 9)
    matches = pattern[..., None] == np.arange(10)
    windows = [matches[:, a:b, c:d].sum(axis=(1, 2)) for a, b in PATTERN_WINDOWS for c, d in PATTERN_WINDOWS]
    return np.concatenate(windows, axis=1).astype(float)


def fourier(pictures: Array) -> Array:
    """Magnitudes of the two-dimensional Fourier transform, ``|F(u, v)|`` for v = 0 to 4: 40.

    They stay the same if the digit moves, except for what wraps around. The other frequencies repeat these.
    """
    magnitudes: Array = np.abs(fft.rfft2(pictures)).reshape(len(pictures), -1)
    return magnitudes


DESCRIPTORS: dict[str, Callable[[Array], Array]] = {
    "pixels": pixels,
    "gradients": gradients,
    "projections": projections,
    "patterns": patterns,
    "fourier": fourier,
}
