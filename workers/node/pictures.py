"""Pictures of items, for people who look at answers: a folder with one file for each item, named by the item's id."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from omdml.errors import ConfigurationError
from omdml.streams.bounded_files import read_regular

# No SVG: it can hold scripts.
MEDIA = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".gif": "image/gif",
}
MAX_BYTES = 8 << 20


class Picture(NamedTuple):
    """The bytes of a picture, and their media type."""

    data: bytes
    media: str


class Pictures:
    """The pictures in a folder: ``ID.png``, or another ending of :data:`MEDIA`.

    Raises ConfigurationError if there is no such folder.
    """

    def __init__(self, folder: str | Path, where: str) -> None:
        self._folder = Path(folder)
        if not self._folder.is_dir():
            raise ConfigurationError(
                f"{where} is {str(folder)!r}, expected a folder with a file for each item, such as ID.png"
            )

    def find(self, item: str) -> Picture | None:
        """The picture of an item; None if it has none that can be read.

        An id with a slash or a leading dot would lead out of the folder, and one with NUL is no name of a file.
        """
        if item.startswith(".") or "/" in item or "\0" in item:
            return None
        for ending, media in MEDIA.items():
            try:
                return Picture(read_regular(self._folder / f"{item}{ending}", MAX_BYTES), media)
            except OSError:
                continue
        return None
