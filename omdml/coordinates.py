"""A kernel map: coordinates of items that are not linear in their features, made from a catalogue before any click.

In addition to its features, each modality gets Nystroem coordinates under a Gaussian kernel (Williams and Seeger,
*Using the Nystroem Method to Speed Up Kernel Machines*, NIPS 2000); all of them are reduced to their principal
coordinates (MATHS 13). Learners take the result as one modality.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from omdml.blas import one_blas_thread
from omdml.errors import CorruptError, ParameterError, StartError, quoted
from omdml.formats import MAP
from omdml.initial import NOISE, check_sample
from omdml.metrics.base import check_features, dims_of
from omdml.snapshot import UNLIKE, digest, pack, unpack

Array = NDArray[Any]
# Name of these coordinates in configurations, files and fields.
MAPPED = "mapped"
# The number of items that each item is compared with.
LANDMARKS = 200
# The most coordinates of a map.
COORDINATES = 512
# The most rows that a map is made from.
SAMPLE = 2048
# The most numbers in the sample, features and kernel coordinates together. (It has at least two rows, even if two rows
# have more numbers.)
SAMPLE_NUMBERS = 1 << 24
# A direction with less than this share of the largest eigenvalue is rounding, and is left out.
LEAST = 1e-10
# The most rows, and the most numbers, that are mapped at a time.
CHUNK_ROWS, CHUNK_NUMBERS = 512, 1 << 22


class ModalityMap(NamedTuple):
    """What a modality of D numbers adds to the d coordinates, with L landmarks; float64."""

    mean: Array  # (D,)
    # Landmarks less the mean.
    landmarks: Array  # (L, D)
    width: Array  # (1,)
    linear: Array  # (D, d)
    kernel: Array  # (L, d)


class CoordinateMap:
    """Maps the features of items to coordinates; immutable.

    With z the features of a modality less their mean, and k their similarities to its landmarks ``l``,

        ``k_i = exp(-|z - l_i|^2 / width)``,    ``coordinates = sum over modalities (linear' z + kernel' k) - offset``

    ``kernel`` holds the whitening over the landmarks too, so that nothing else is computed for a new item. For figures
    and the derivation see MATHS 13.

    Examples
    --------
    >>> features = {"color": np.random.default_rng(0).random((500, 8), np.float32)}
    >>> map = CoordinateMap.fit(features)
    >>> map.dims, map.dim, map.apply(features).shape
    ({'color': 8}, 208, (500, 208))
    """

    def __init__(self, parts: Mapping[str, ModalityMap], offset: Array) -> None:
        self._parts, self._offset = dict(parts), offset
        # Computed once, because otherwise every query would read the landmarks twice.
        self._squares = {name: _squares(part.landmarks) for name, part in self._parts.items()}
        self.dims = {name: len(part.mean) for name, part in self._parts.items()}
        self.dim = len(offset)
        self._rows = max(1, min(CHUNK_ROWS, CHUNK_NUMBERS // sum(self.dims.values())))

    @classmethod
    def fit(
        cls,
        features: Mapping[str, Array],
        *,
        landmarks: int = LANDMARKS,
        coordinates: int = COORDINATES,
        sample: int = SAMPLE,
        seed: int = 0,
    ) -> CoordinateMap:
        """Make the map of a catalogue. On one numeric platform, the same items give the same bytes.

        This takes a few seconds and up to 1 GB of memory, whatever the catalogue's size.

        Parameters
        ----------
        features
            One matrix (n, D) for each modality, of at least one row. They may be memory-mapped.
        landmarks
            Number of rows of the sample that items are compared with, at least 1; all rows if there are fewer.
        coordinates
            The most coordinates, at least 1. There are fewer if the sample spans fewer directions. If all items are
            alike, there is a single coordinate, which is always 0.
        sample
            Number of rows drawn with ``seed``, at least 1; fewer if these have more than 16 million numbers.
        seed
            At least 0.

        Raises
        ------
        ParameterError
            ``landmarks``, ``coordinates`` or ``sample`` is no whole number of at least 1, or ``seed`` is no whole
            number of at least 0.
        FeedbackError
            ``features`` are not such matrices, or there is none.
        StartError
            There are no items, or a value in the sample is not finite or above 1e140.
        """
        numbers: tuple[object, ...] = (landmarks, coordinates, sample)
        if not all(isinstance(number, int | np.integer) and number >= 1 for number in numbers):
            raise ParameterError(f"{landmarks=}, {coordinates=}, {sample=}: expected whole numbers of at least 1")
        given: object = seed
        if not (isinstance(given, int | np.integer) and given >= 0):
            raise ParameterError(f"seed={quoted(seed)}: expected a whole number of at least 0")
        dims = dims_of(features)
        count = check_features(features, dims)
        if not count:
            raise StartError("a map of coordinates needs at least one item: there are none", rows=1)
        width = sum(dims.values()) + landmarks * len(dims)
        draw = np.random.default_rng(seed)
        rows = np.sort(draw.choice(count, min(count, sample, max(2, SAMPLE_NUMBERS // width)), replace=False))
        chosen = np.sort(draw.choice(len(rows), min(landmarks, len(rows)), replace=False))
        with one_blas_thread():
            begun, blocks = {}, []
            for name in sorted(dims):
                x = np.asarray(features[name][rows], np.float64)
                check_sample(x, rows, name)
                begun[name], columns = _begin(x, chosen)
                blocks += columns
            basis = _principal(np.concatenate(blocks, axis=1), coordinates)
        return cls(*_folded(begun, basis))

    def apply(self, features: Mapping[str, Array]) -> NDArray[np.float32]:
        """Coordinates (n, d) of items with ``features`` (n, D) of each modality; float32, computed in float64.

        Numbers that float32 cannot hold become infinite. Rows that are computed together may differ from the same rows
        computed alone by rounding in float64, which is hardly ever visible in float32. Raises FeedbackError if a
        modality is missing or has another dimension.
        """
        count = check_features(features, self.dims)
        mapped = np.empty((count, self.dim), np.float32)
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, count, self._rows):
                rows, total = slice(start, start + self._rows), -self._offset
                for name, part in self._parts.items():
                    z = np.asarray(features[name][rows], np.float64) - part.mean
                    k = np.exp(-_squared_distances(z, part.landmarks, self._squares[name]) / part.width)
                    total = total + z @ part.linear + k @ part.kernel
                mapped[rows] = total
        return mapped

    @property
    def digest(self) -> str:
        """Sha256 of all numbers of the map."""
        return digest(dict(self._tensors()))

    @property
    def nbytes(self) -> int:
        """Bytes of memory of its arrays."""
        return sum(array.nbytes for _, array in self._tensors())

    def to_bytes(self) -> bytes:
        """Write safetensors, float64: ``offset``, and the arrays of each modality as ``<modality>/mean`` and so on."""
        return pack(dict(self._tensors()), {"map": {"modalities": list(self._parts)}}, MAP)

    @classmethod
    def from_bytes(cls, data: bytes) -> CoordinateMap:
        """The map in these bytes; raises CorruptError."""
        tensors, metadata = unpack(data, MAP)
        try:
            offset = tensors["offset"]
            names = metadata["map"]["modalities"]
            parts = {
                name: ModalityMap(*(tensors[f"{name}/{field}"] for field in ModalityMap._fields)) for name in names
            }
        except UNLIKE as error:
            raise CorruptError(f"{MAP.what}: its fields are not those of a map ({error}): damaged") from error
        if not parts or offset.ndim != 1 or offset.dtype != np.float64:
            raise CorruptError(f"{MAP.what}: it has no modality, or no offset of float64 numbers: damaged")
        for name, part in parts.items():
            dim, count = part.mean.size, len(part.kernel) if part.kernel.ndim else 0
            shapes = ((dim,), (count, dim), (1,), (dim, offset.size), (count, offset.size))
            if any(array.dtype != np.float64 for array in part) or tuple(array.shape for array in part) != shapes:
                raise CorruptError(f"{MAP.what}: the arrays of modality {name!r} do not fit together: damaged")
        return cls(parts, offset)

    def _tensors(self) -> Iterator[tuple[str, Array]]:
        yield "offset", self._offset
        for name, part in self._parts.items():
            yield from ((f"{name}/{field}", array) for field, array in zip(ModalityMap._fields, part, strict=True))


class _Begun(NamedTuple):
    """A modality whose principal directions are not known yet."""

    mean: Array  # (D,)
    # Landmarks less the mean.
    landmarks: Array  # (L, D)
    width: float
    # Factor of the features.
    scale: float
    # Whitening, times the factor of the kernel coordinates.
    whitening: Array  # (L, l)
    # Mean similarity of the sample's items to each landmark.
    centre: Array  # (L,)


def _begin(x: Array, chosen: Array) -> tuple[_Begun, list[Array]]:
    """A modality of a sample (m, D), and two blocks of columns: its features and its kernel coordinates.

    Each block has a total variance of 1; of 0 if all items are alike.
    """
    mean = x.mean(axis=0)
    z = x - mean
    landmarks = z[chosen]
    squares = _squared_distances(z, landmarks, _squares(landmarks))
    width = float(squares.mean())
    size = float((x**2).sum(axis=1).mean())
    if not width > NOISE * size:
        width = 1.0
    k = np.exp(-squares / width)
    values, vectors = eigh(k[chosen])
    varying = values > LEAST * values[-1]
    whitening = _with_fixed_signs(vectors[:, varying]) / np.sqrt(values[varying])
    centre = k.mean(axis=0)
    coordinates = (k - centre) @ whitening
    # Kernel coordinates have a length of at most 1.
    scale, kernel_scale = _unit_variance(z, size), _unit_variance(coordinates, 1.0)
    begun = _Begun(mean, landmarks, width, scale, whitening * kernel_scale, centre)
    return begun, [z * scale, coordinates * kernel_scale]


def _squares(rows: Array) -> Array:
    """Squared lengths (n,) of rows (n, d)."""
    return np.einsum("ij,ij->i", rows, rows)


def _squared_distances(z: Array, landmarks: Array, squares: Array) -> Array:
    """Squared distances (n, L) of rows (n, D) and (L, D), whose squared lengths are given."""
    return np.maximum(_squares(z)[:, None] + squares - 2 * z @ landmarks.T, 0.0)


def _unit_variance(columns: Array, size: float) -> float:
    """The factor that gives centred columns a total variance of 1; 0 if their variance is rounding beside ``size``."""
    variance = float((columns**2).sum(axis=1).mean())
    return 1 / np.sqrt(variance) if variance > NOISE * size else 0.0


def _principal(columns: Array, most: int) -> Array:
    """The principal directions (D, d) of centred columns (m, D), at most ``most``, the largest variance first.

    They are computed from the smaller of the two Gram matrices. The generation of a catalogue depends on their last
    digits, so this function is not shared with the starts of learners, which may change.
    """
    rows, width = columns.shape
    gram = columns.T @ columns if width <= rows else columns @ columns.T
    low = max(0, len(gram) - most)
    values, vectors = eigh(gram, subset_by_index=[low, len(gram) - 1])
    varying = values > LEAST * values[-1]
    # If all items are alike, any direction will do, because it is multiplied by zeros.
    if not varying.any():
        return np.eye(width, 1)
    values, vectors = values[varying][::-1], vectors[:, varying][:, ::-1]
    basis = vectors if width <= rows else columns.T @ vectors / np.sqrt(values)
    return np.ascontiguousarray(_with_fixed_signs(basis))


def _with_fixed_signs(directions: Array) -> Array:
    """The columns, with signs such that the largest entry of each is positive: LAPACK's depend on the processor."""
    largest = directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])]
    return directions * np.sign(largest)


def _folded(begun: Mapping[str, _Begun], basis: Array) -> tuple[dict[str, ModalityMap], Array]:
    """Multiply the basis into the modalities, so that it applies to features and similarities directly."""
    parts, row, offset = {}, 0, np.zeros(basis.shape[1])
    for name, modality in begun.items():
        middle = row + len(modality.mean)
        end = middle + modality.whitening.shape[1]
        kernel = modality.whitening @ basis[middle:end]
        linear = np.ascontiguousarray(modality.scale * basis[row:middle])
        parts[name] = ModalityMap(modality.mean, modality.landmarks, np.array([modality.width]), linear, kernel)
        offset = offset + modality.centre @ kernel
        row = end
    return parts, offset
