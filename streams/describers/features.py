"""Turns the texts and the picture that come with an item or a query into vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omdml.streams.describers.describer import Describer, DescriberError
from omdml.streams.describers.pictures import encoded


def features_of(
    describer: Describer | None,
    features: Mapping[str, Sequence[float]] | None,
    text: Mapping[str, str] | None,
    picture: bytes | None,
) -> tuple[dict[str, list[float]], bytes | None]:
    """Raw vectors of one item or query by modality, from its features, text and picture; and the picture's thumbnail.

    Raises DescriberError if text or picture cannot be described, or if a modality comes twice.
    """
    if describer is None:
        kind = "a picture" if text is None else "text"
        raise DescriberError(
            f"the catalogue was built from vectors alone and cannot describe {kind}: send features, or build it with "
            "--pictures or --text",
            "no_describer",
        )
    given = {name: list(vector) for name, vector in (features or {}).items()}
    vectors, thumbnail = {}, None
    if picture is not None:
        described = describer.picture(picture)
        vectors, thumbnail = dict(described.vectors), encoded(described.thumbnail)
    if text is not None:
        vectors |= describer.words(text)
    if twice := sorted(given.keys() & vectors.keys()):
        raise DescriberError(
            f"modality {twice[0]!r} is in the features, and is also made from the text or picture: leave out one"
        )
    return given | {name: vector.tolist() for name, vector in vectors.items()}, thumbnail
