"""Changes that bring texts or pictures become changes that bring vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from omdml.streams.catalogues.changes.change import Change, ChangeError
from omdml.streams.describers.describer import Describer, DescriberError, thumbnail_file


class Ready(NamedTuple):
    """Changes without texts and pictures, and the thumbnails of the items that brought a picture."""

    changes: list[Change]
    thumbnails: Mapping[str, bytes]


def described(describer: Describer | None, changes: Iterable[Change]) -> Ready:
    """Describe what these changes bring; raises ChangeError, which names the item."""
    made: list[Change] = []
    thumbnails: dict[str, bytes] = {}
    for change in changes:
        if change.text is None and change.picture is None:
            made.append(change)
            continue
        try:
            features, thumbnail = features_of(describer, change.features, change.text, change.picture)
        except DescriberError as error:
            raise ChangeError(f"item {change.id!r}: {error}", error.reason) from error
        if thumbnail is not None:
            thumbnails[change.id] = thumbnail
        made.append(msgspec.structs.replace(change, features=features, text=None, picture=None))
    return Ready(made, thumbnails)


def features_of(
    describer: Describer | None,
    features: Mapping[str, list[float]] | None,
    text: Mapping[str, str] | None,
    picture: bytes | None,
) -> tuple[dict[str, list[float]], bytes | None]:
    """Raw vectors that stand for features, text and picture of one item or query; and the picture's thumbnail.

    Raises DescriberError, also if a modality comes twice.
    """
    if describer is None:
        told = "a picture" if text is None else "text"
        raise DescriberError(
            f"the catalogue was built from vectors alone and cannot describe {told}: send features, or build it with "
            "--pictures or --text",
            "no_describer",
        )
    made = dict(features or {})
    vectors, thumbnail = {}, None
    if picture is not None:
        found = describer.picture(picture)
        vectors, thumbnail = dict(found.vectors), thumbnail_file(found)
    if text is not None:
        vectors |= describer.words(text)
    if twice := sorted(made.keys() & vectors.keys()):
        raise DescriberError(f"modality {twice[0]!r} is in the features, and described too: leave out one of the two")
    return made | {name: vector.tolist() for name, vector in vectors.items()}, thumbnail
