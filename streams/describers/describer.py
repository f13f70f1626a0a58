"""Describes pictures and texts of one generation of a catalogue, in the same way when it is built and ever after."""

from __future__ import annotations

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
    open_picture,
    stretched,
    within,
)
from omdml.streams.describers.sources import Sources
from omdml.streams.describers.thumbnails import THUMBNAIL_SIDE
from omdml.streams.describers.words import Words

Vector = NDArray[np.float32]
# Two sent pictures at most are decoded at the same time, because each takes up to 64 MB.
_decoding = threading.BoundedSemaphore(2)


class DescriberError(CatalogueError):
    """Raised if a catalogue cannot describe a text or picture; ``reason`` is a code that never changes."""

    def __init__(self, message: str, reason: str = "invalid") -> None:
        super().__init__(message)
        self.reason = reason


class Described(NamedTuple):
    """What one picture becomes: a vector for each modality, and a thumbnail of pixels (side, side, 3)."""

    vectors: dict[str, Vector]
    thumbnail: NDArray[np.uint8]


class PictureDescriber:
    """How pictures are described.

    Parameters
    ----------
    looks
        What is computed: names from :data:`omdml.streams.describers.looks.LOOKS`.
    model
        The user's own model, whose vector is one more modality; None if there is none.
    """

    def __init__(self, looks: Sequence[str], model: OnnxModel | None) -> None:
        self.looks, self.model = tuple(looks), model

    def describe(self, image: Any) -> Described:
        """Describe a picture that :func:`omdml.streams.describers.pictures.open_picture` opened."""
        pixels = stretched(image, SIDE, SIDE)
        vectors = {modality_of(look): LOOKS[look](pixels) for look in self.looks}
        if self.model:
            vectors[MODALITY] = self.model.describe(image)
        # A build stores vectors as float32 before it scales them. Items that come later must be rounded alike.
        rounded = {name: vector.astype(np.float32) for name, vector in vectors.items()}
        return Described(rounded, within(image, THUMBNAIL_SIDE))

    @property
    def dims(self) -> dict[str, int]:
        """How many numbers the vector of each modality has."""
        return {name: vector.size for name, vector in self.describe(blank()).vectors.items()}

    @property
    def modalities(self) -> list[str]:
        """Names of the modalities that it computes."""
        return [*(modality_of(look) for look in self.looks), *([MODALITY] if self.model else [])]


class Describer:
    """How pictures and texts become vectors.

    Parameters
    ----------
    pictures
        How pictures are described; None if the catalogue was built without pictures.
    texts
        How texts are described, by column. The column's name is the modality's too.
    """

    def __init__(self, pictures: PictureDescriber | None, texts: Mapping[str, Words]) -> None:
        self.pictures, self.texts = pictures, dict(texts)

    @property
    def modalities(self) -> list[str]:
        """Names of the modalities that it computes."""
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
            raise DescriberError("the catalogue was built without --text: it cannot describe texts", "no_describer")
        if unknown := sorted(texts.keys() - self.texts.keys()):
            known = ", ".join(self.texts)
            raise DescriberError(
                f"the catalogue describes no text {unknown[0]!r}, it describes {known}: name one of these"
            )
        described = {name: self.texts[name].describe(text) for name, text in texts.items()}
        vectors = {name: vector for name, vector in described.items() if vector is not None}
        if not vectors:
            raise DescriberError(
                f"no word of {', '.join(map(repr, texts)) or 'the text'} occurs in the catalogue: use other words",
                "no_known_word",
            )
        return vectors

    def serves(self, sources: Sources) -> bool:
        """Whether it can be used again for these sources: they ask for the same texts, looks and model."""
        if set(self.texts) != set(sources.texts) or (self.pictures is None) != (sources.pictures is None):
            return False
        if self.pictures is None:
            return True
        own_model = self.pictures.model
        asked_model = read_model(sources.model, sources.preparation) if sources.model else None
        same_looks = self.pictures.looks == tuple(LOOKS)
        if own_model is None or asked_model is None:
            return same_looks and own_model is asked_model
        return same_looks and (asked_model.data, asked_model.preparation) == (own_model.data, own_model.preparation)

    def to_bytes(self) -> bytes:
        """Encode it as safetensors.

        ``onnx`` is the model's file. Each text column has ``<column>/terms``, ``<column>/weights`` and
        ``<column>/basis``.
        """
        tensors: dict[str, NDArray[Any]] = {}
        description: dict[str, Any] = {"texts": list(self.texts)}
        for name, words in self.texts.items():
            tensors |= {f"{name}/terms": words.terms, f"{name}/weights": words.weights, f"{name}/basis": words.basis}
        if self.pictures:
            description["looks"] = list(self.pictures.looks)
            if model := self.pictures.model:
                description["preparation"] = msgspec.to_builtins(model.preparation)
                tensors["onnx"] = np.frombuffer(model.data, np.uint8)
        # Safetensors must hold at least one tensor.
        return pack(tensors or {"nothing": np.zeros(1, np.uint8)}, {"describer": description}, DESCRIBER)

    @classmethod
    def from_bytes(cls, data: bytes) -> Describer:
        """Decode a describer.

        Raises CorruptError if the bytes are damaged, CatalogueError if it needs a package that is not installed or a
        look that this version does not know.
        """
        tensors, metadata = unpack(data, DESCRIBER)
        try:
            description = metadata["describer"]
            texts = {name: _words(tensors, name) for name in description["texts"]}
            looks, preparation = description.get("looks"), description.get("preparation")
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptError(
                f"{DESCRIBER.what} is damaged ({error!r}): restore it, or build the catalogue again"
            ) from error
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
