"""What describes pictures and texts in one generation of a catalogue: the same way at its build and ever after."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError, CorruptError
from omdml.formats import DESCRIBER
from omdml.snapshot import pack, unpack
from omdml.streams.describers.looks import LOOKS, SIDE, modality_of
from omdml.streams.describers.onnx_model import MODALITY, OnnxModel, Preparation, read_model
from omdml.streams.describers.pictures import (
    MAX_SENT_BYTES,
    MAX_SENT_PIXELS,
    PictureError,
    blank,
    encoded,
    open_picture,
    stretched,
    within,
)
from omdml.streams.describers.sources import Sources
from omdml.streams.describers.words import Words

Vector = NDArray[np.float32]
# Pixels a side of the pictures that lists of items show.
THUMBNAIL_SIDE = 64
# Sent pictures that are decoded at the same time, because one takes up to 64 MB.
_decoding = threading.BoundedSemaphore(2)


class DescriberError(CatalogueError):
    """A text or picture that a catalogue cannot describe; ``reason`` is a code that never changes."""

    def __init__(self, message: str, reason: str = "invalid") -> None:
        super().__init__(message)
        self.reason = reason


class Described(NamedTuple):
    """What one picture becomes: a vector a modality, and its thumbnail, pixels (side, side, 3)."""

    vectors: dict[str, Vector]
    thumbnail: NDArray[np.uint8]


class PictureDescriber:
    """How pictures are described.

    Parameters
    ----------
    looks
        Names of what is computed, of :data:`omdml.streams.describers.looks.LOOKS`.
    model
        The user's own model, whose vector is a modality too.
    """

    def __init__(self, looks: Sequence[str], model: OnnxModel | None) -> None:
        self.looks, self.model = tuple(looks), model

    def describe(self, image: Any) -> Described:
        """Describe a picture that was opened."""
        pixels = stretched(image, SIDE, SIDE)
        vectors = {modality_of(look): LOOKS[look](pixels) for look in self.looks}
        if self.model:
            vectors[MODALITY] = self.model.describe(image)
        # Built items lie on the disk as float32 before they are scaled: those that come later are rounded alike.
        rounded = {name: vector.astype(np.float32) for name, vector in vectors.items()}
        return Described(rounded, within(image, THUMBNAIL_SIDE))

    @property
    def dims(self) -> dict[str, int]:
        """Numbers of a vector, a modality each."""
        return {name: vector.size for name, vector in self.describe(blank()).vectors.items()}

    @property
    def modalities(self) -> list[str]:
        """Names of the modalities that it makes."""
        return [*(modality_of(look) for look in self.looks), *([MODALITY] if self.model else [])]


class Describer:
    """How pictures and texts become vectors.

    Parameters
    ----------
    pictures
        How pictures are described; None if the catalogue was built without.
    texts
        By column, which is the name of the modality too.
    """

    def __init__(self, pictures: PictureDescriber | None, texts: Mapping[str, Words]) -> None:
        self.pictures, self.texts = pictures, dict(texts)

    @property
    def modalities(self) -> list[str]:
        """Names of the modalities that it makes."""
        return [*(self.pictures.modalities if self.pictures else ()), *self.texts]

    def picture(self, data: bytes) -> Described:
        """Describe a picture that was sent; raises DescriberError."""
        if self.pictures is None:
            raise DescriberError("the catalogue was built without --pictures: it cannot describe one", "no_describer")
        if len(data) > MAX_SENT_BYTES:
            raise DescriberError(
                f"the picture has {len(data):,} bytes, expected at most {MAX_SENT_BYTES:,}: send a smaller one",
                "oversize",
            )
        try:
            with _decoding:
                return self.pictures.describe(open_picture(data, MAX_SENT_PIXELS))
        except PictureError as error:
            raise DescriberError(f"the picture cannot be used: {error}", error.reason) from error

    def words(self, texts: Mapping[str, str]) -> dict[str, Vector]:
        """Vectors of the texts that hold a known word, by column.

        Raises DescriberError for an unknown column, or if no text holds a known word.
        """
        if not self.texts:
            raise DescriberError("the catalogue was built without --text: it cannot describe one", "no_describer")
        if unknown := sorted(texts.keys() - self.texts.keys()):
            known = ", ".join(self.texts)
            raise DescriberError(
                f"text {unknown[0]!r} is no text of the catalogue, which has {known}: name one of these"
            )
        made = {name: self.texts[name].describe(text) for name, text in texts.items()}
        known_ones = {name: vector for name, vector in made.items() if vector is not None}
        if not known_ones:
            raise DescriberError(
                f"no word of {', '.join(map(repr, texts)) or 'the text'} occurs in the catalogue: use other words",
                "no_known_word",
            )
        return known_ones

    def serves(self, sources: Sources) -> bool:
        """Whether it describes these sources in the way that is asked for, so that it may be used again."""
        if set(self.texts) != set(sources.texts) or (self.pictures is None) != (sources.pictures is None):
            return False
        if self.pictures is None:
            return True
        mine = self.pictures.model
        asked = read_model(sources.model, sources.preparation) if sources.model else None
        same_looks = self.pictures.looks == tuple(LOOKS)
        if mine is None or asked is None:
            return same_looks and mine is asked
        return same_looks and (asked.data, asked.preparation) == (mine.data, mine.preparation)

    @property
    def digest(self) -> str:
        """The SHA-256 of the describer's bytes."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Safetensors: ``onnx``, the model's file, and ``<column>/terms``, ``/weights`` and ``/basis`` a column."""
        tensors: dict[str, NDArray[Any]] = {}
        description: dict[str, Any] = {"texts": list(self.texts)}
        for name, words in self.texts.items():
            tensors |= {f"{name}/terms": words.terms, f"{name}/weights": words.weights, f"{name}/basis": words.basis}
        if self.pictures:
            description["looks"] = list(self.pictures.looks)
            if model := self.pictures.model:
                description["preparation"] = msgspec.to_builtins(model.preparation)
                tensors["onnx"] = np.frombuffer(model.data, np.uint8)
        # Safetensors without a tensor cannot be written.
        return pack(tensors or {"nothing": np.zeros(1, np.uint8)}, {"describer": description}, DESCRIBER)

    @classmethod
    def from_bytes(cls, data: bytes) -> Describer:
        """The describer in these bytes.

        Raises CorruptError, or CatalogueError if it needs what is not installed or not known here.
        """
        tensors, metadata = unpack(data, DESCRIBER)
        try:
            description = metadata["describer"]
            texts = {name: _words(tensors, name) for name in description["texts"]}
            looks, preparation = description.get("looks"), description.get("preparation")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(f"{DESCRIBER.what}: not of this kind ({error!r}): damaged") from error
        if looks is None:
            return cls(None, texts)
        if unknown := sorted(set(looks) - LOOKS.keys()):
            raise CatalogueError(
                f"{DESCRIBER.what}: pictures are described by {unknown[0]!r}, which this omdml does not know: run the "
                "release that built the catalogue, or build it again"
            )
        model = None
        if preparation is not None:
            model = OnnxModel(tensors["onnx"].tobytes(), msgspec.convert(preparation, Preparation))
        return cls(PictureDescriber(looks, model), texts)


def thumbnail_file(described: Described) -> bytes:
    """A thumbnail of a picture, encoded as WebP."""
    return encoded(described.thumbnail)


def _words(tensors: Mapping[str, NDArray[Any]], name: str) -> Words:
    words = Words(*(tensors[f"{name}/{part}"] for part in ("terms", "weights", "basis")))
    terms, weights, basis = words.terms, words.weights, words.basis
    kinds = [str(part.dtype) for part in (terms, weights, basis)]
    if (
        kinds != ["uint32", "float32", "float32"]
        or not 0 < len(terms) == len(weights) == len(basis)
        or basis.ndim != 2
        or terms.ndim != 1
    ):
        raise ValueError(f"the arrays of text {name!r} do not fit together")
    return words
