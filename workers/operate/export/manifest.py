"""The manifest of an export: which parts it consists of, and which version they add up to.

=====================  ==========================================================================
``manifest.json``      this manifest; it is put in place last, so what it names is whole
``part-000001/``       a part: all items, or those that changed since the part before
``.lock``              held by the process that writes here
=====================  ==========================================================================

Who reads the parts in their order, each over those before, has every item as ``version`` has it, or no further from
that than ``bound`` says. The first part is always a whole one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from omdml.errors import ConfigurationError, CorruptError
from omdml.streams.bounded_files import DOCUMENT_BYTES, read_regular
from omdml.streams.disk import put

MANIFEST = "manifest.json"
FORMAT = 1

Format = Literal["npy", "parquet"]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part: so many ``rows`` of one version, and so many ``removed`` items; sha256 by file."""

    name: str
    whole: bool
    version: int
    serial: int
    rows: int
    removed: int
    files: dict[str, str]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an export holds: ``items`` of ``width`` numbers each, as ``version`` embeds them.

    ``moved`` is the bound as a share of the items' root mean square distance from their mean, ``bound`` that distance:
    no item lies further from where the version has it. ``serial``, ``digest`` and ``generation`` are the snapshot's.
    """

    manifest: int = FORMAT
    model: str
    task: str | None
    format: Format
    width: int
    items: int
    moved: float
    bound: float
    version: int
    serial: int
    digest: str
    generation: str
    parts: tuple[Part, ...]

    def write(self, folder: Path) -> None:
        """Replace the manifest by this one, in one atomic step."""
        put(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(self), indent=2))


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of an export, None if there is none; raises CorruptError.

    Raises ConfigurationError for a folder that holds something else: nothing of it must be deleted.
    """
    try:
        data = read_regular(folder / MANIFEST, DOCUMENT_BYTES)
    except FileNotFoundError:
        if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise ConfigurationError(
                f"{folder}: it holds something, and no {MANIFEST}: name a folder that is empty, not there yet, or an "
                "export's"
            ) from None
        return None
    except OSError as error:
        raise ConfigurationError(f"{folder}: {error.strerror}: name a folder that can be written") from error
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise CorruptError(f"{folder / MANIFEST}: {error}: remove the folder, and export again") from error
    if manifest.manifest != FORMAT:
        raise CorruptError(f"{folder / MANIFEST}: format {manifest.manifest}, this omdml reads {FORMAT}: update it")
    return manifest
