"""Changes that bring texts or pictures become changes that bring vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from omdml.streams.catalogues.changes.change import Change, ChangeError
from omdml.streams.describers.describer import Describer, DescriberError
from omdml.streams.describers.features import features_of


class DescribedChanges(NamedTuple):
    """Changes without texts and pictures, and the thumbnails of the items that brought a picture."""

    changes: list[Change]
    thumbnails: Mapping[str, bytes]


def described(describer: Describer | None, changes: Iterable[Change]) -> DescribedChanges:
    """Describe what these changes bring; raises ChangeError, which names the item."""
    ready: list[Change] = []
    thumbnails: dict[str, bytes] = {}
    for change in changes:
        if change.text is None and change.picture is None:
            ready.append(change)
            continue
        try:
            features, thumbnail = features_of(describer, change.features, change.text, change.picture)
        except DescriberError as error:
            raise ChangeError(f"item {change.id!r}: {error}", error.reason) from error
        if thumbnail is not None:
            thumbnails[change.id] = thumbnail
        ready.append(msgspec.structs.replace(change, features=features, text=None, picture=None))
    return DescribedChanges(ready, thumbnails)
