"""The manifest of a catalogue says how to read it: its generation, its modalities, and what is in its files."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from omdml.coordinates import MAPPED
from omdml.errors import CatalogueError
from omdml.formats import CATALOGUE, REDIS_CATALOGUE, Format, Numbered
from omdml.streams.catalogues.scaling import MinMax, Scaling

# The files of a folder.
IDS, SETS, MAP, DESCRIBER = "ids.txt", "sets.jsonl", "map.safetensors", "describer.safetensors"
# A modality's name is a part of a file's name, and of a field in Redis.
MODALITY_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"
# Digits of a sha256: enough to tell a catalogue's maps apart.
MAP_DIGITS = 8
# Digits of a sha256: enough to tell generations apart, short enough for a key of each item in Redis.
GENERATION_DIGITS = 16


class Modality(msgspec.Struct, frozen=True):
    """One kind of vector: ``dim`` numbers, and how they are scaled."""

    dim: Annotated[int, Meta(ge=1)]
    scaling: Scaling


class MapEntry(msgspec.Struct, frozen=True):
    """A map of coordinates: how many there are, and the sha256 of the map's bytes."""

    dim: Annotated[int, Meta(ge=1)]
    sha256: str


class DescriberEntry(msgspec.Struct, frozen=True):
    """What describes pictures and texts: the modalities that it makes, and the sha256 of its bytes."""

    modalities: list[str]
    sha256: str


class CatalogueShape(NamedTuple):
    """What of a catalogue decides whether a metric fits it."""

    generation: str
    dims: Mapping[str, int]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What describes a generation wherever it is kept. In Redis, nothing is added to it."""

    kind: ClassVar[Format] = REDIS_CATALOGUE
    format: int = REDIS_CATALOGUE.number
    generation: str
    modalities: Annotated[dict[Annotated[str, Meta(pattern=MODALITY_NAME)], Modality], Meta(min_length=1)]
    map: MapEntry | None = None
    describer: DescriberEntry | None = None

    @property
    def dims(self) -> dict[str, int]:
        """Numbers an item has in each modality."""
        return {name: modality.dim for name, modality in self.modalities.items()}

    def in_coordinates(self, coordinates: str) -> CatalogueShape:
        """What models with ``coordinates`` of this kind see of it: generation and dimensions."""
        return CatalogueShape(self.generation, self.mapped_dims if coordinates == MAPPED else self.dims)

    @property
    def mapped_dims(self) -> dict[str, int]:
        """Numbers an item has in mapped coordinates, which are one modality; empty if there is no map.

        It is named after the map: what was learned in the coordinates of one map fits those of no other.
        """
        return {f"{MAPPED}-{self.map.sha256[:MAP_DIGITS]}": self.map.dim} if self.map else {}


# Defaults are omitted, so catalogues without sets kept their generation when sets came.
class CataloguePart(msgspec.Struct, frozen=True, omit_defaults=True):
    """Items added together: how many, their bytes in ``ids.txt``, sha256 of these bytes and of each matrix's rows.

    The sets added with them have ``sets_bytes`` in ``sets.jsonl``. Changes in the first ``after`` bytes of the journal
    came before them.
    """

    count: Annotated[int, Meta(ge=1)]
    ids_bytes: int
    sha256: dict[str, str]
    sets_bytes: int = 0
    after: int = 0

    def size(self, name: str) -> int:
        """Bytes of these items in ``ids.txt``, or of the sets added with them in ``sets.jsonl``."""
        return self.ids_bytes if name == IDS else self.sets_bytes


class FolderManifest(Manifest, frozen=True, kw_only=True):
    """``catalogue.json``: what the files beside it hold.

    Rows past the last part belong to changes in the journal, or were never finished.
    """

    kind: ClassVar[Format] = CATALOGUE
    format: int = CATALOGUE.number
    parts: Annotated[tuple[CataloguePart, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        """Raise ValueError if a part lacks the sha256 of a file."""
        for part in self.parts:
            files = {IDS, *self.modalities, *([MAPPED] if self.map else []), *([SETS] if part.sets_bytes else [])}
            if missing := files - part.sha256.keys():
                raise ValueError(f"a part has no sha256 of {', '.join(sorted(missing))}")


AnyManifest = TypeVar("AnyManifest", bound=Manifest)


def generation_of(
    modalities: Mapping[str, Modality],
    first: CataloguePart,
    map_entry: MapEntry | None,
    describer: DescriberEntry | None = None,
) -> str:
    """Name of the generation that begins with these items: the same content has the same name."""
    content = [modalities, first, *([map_entry] if map_entry else []), *([describer] if describer else [])]
    return hashlib.sha256(encode_manifest(content)).hexdigest()[:GENERATION_DIGITS]


def encode_manifest(manifest: Any) -> bytes:
    """The manifest as JSON. Floats have all their digits, so that every reader scales alike."""
    return msgspec.json.encode(manifest, enc_hook=lambda array: array.tolist())


def decode_manifest(data: bytes, kind: type[AnyManifest], what: str) -> AnyManifest:
    """The inverse of :func:`encode_manifest`; CatalogueError names ``what`` and the field that is wrong."""
    try:
        numbered = msgspec.json.decode(data, type=Numbered)
        kind.kind.check(numbered.format, what, CatalogueError)
        manifest = msgspec.json.decode(data, type=kind, dec_hook=lambda _, values: np.array(values, np.float64))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CatalogueError(f"{what} is no manifest ({error}): restore it, or build the catalogue again") from error
    if MAPPED in manifest.modalities and manifest.map:
        raise CatalogueError(
            f"{what}: a modality is called {MAPPED!r}, and so is the file of the map's coordinates: rename the "
            "modality, and build the catalogue again"
        )
    for name, modality in manifest.modalities.items():
        scaling = modality.scaling
        if isinstance(scaling, MinMax) and not (scaling.low.shape == scaling.high.shape == (modality.dim,)):
            raise CatalogueError(
                f"{what}: modality {name!r} has {modality.dim} numbers, but not as many bounds of its scaling: restore "
                "it, or build the catalogue again"
            )
    return manifest
