"""The manifest of an export: its parts, and the version that they add up to.

=====================  ==========================================================================
``manifest.json``      this manifest; it is replaced last, so everything that it names is complete
``part-000001/``       a part: all items, or those that changed since the part before
``.lock``              locked by the process that writes here
=====================  ==========================================================================

Read the parts in order, and let later rows replace earlier ones. Then every item is where ``version`` has it, or at
most ``bound`` away from there. The first part always has all items.
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


class ExportPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part: the number of its ``rows``, of its ``removed`` items, and the sha256 of each file.

    ``whole`` says that it has all items.
    """

    name: str
    whole: bool
    version: int
    serial: int
    rows: int
    removed: int
    files: dict[str, str]


class ExportManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an export holds: ``items`` of ``width`` numbers each, as ``version`` embeds them.

    No item is further than ``bound`` from where the version has it. ``moved`` is this bound as a share of the items'
    root mean square distance from their mean. ``serial``, ``digest`` and ``generation`` are the snapshot's.
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
    parts: tuple[ExportPart, ...]

    def write(self, folder: Path) -> None:
        """Replace the manifest by this one, in one atomic step."""
        put(folder / MANIFEST, msgspec.json.format(msgspec.json.encode(self), indent=2))


def read_manifest(folder: Path) -> ExportManifest | None:
    """Read the manifest of an export; None if there is none.

    Raises CorruptError if it cannot be read, and ConfigurationError if the folder holds something else, which must not
    be deleted.
    """
    try:
        data = read_regular(folder / MANIFEST, DOCUMENT_BYTES)
    except FileNotFoundError:
        if folder.is_dir() and any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise ConfigurationError(
                f"{folder}: it is not empty and has no {MANIFEST}: name an empty folder, a new one, or one with an "
                "export"
            ) from None
        return None
    except OSError as error:
        raise ConfigurationError(f"{folder}: {error.strerror}: name a folder that can be written") from error
    try:
        manifest = msgspec.json.decode(data, type=ExportManifest)
    except msgspec.DecodeError as error:
        raise CorruptError(f"{folder / MANIFEST}: {error}: remove the folder, and export again") from error
    if manifest.manifest != FORMAT:
        raise CorruptError(f"{folder / MANIFEST}: format {manifest.manifest}, this omdml reads {FORMAT}: update it")
    return manifest
