"""Texts and pictures that come with an item or a query, as the vectors that stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omdml.streams.describers.describer import Describer, DescriberError, thumbnail_file


def features_of(
    describer: Describer | None,
    features: Mapping[str, Sequence[float]] | None,
    text: Mapping[str, str] | None,
    picture: bytes | None,
) -> tuple[dict[str, list[float]], bytes | None]:
    """Raw vectors that stand for features, text and picture of one item or query; and the picture's thumbnail.

    Raises DescriberError, also if a modality comes twice.
    """
    if describer is None:
        kind = "a picture" if text is None else "text"
        raise DescriberError(
            f"the catalogue was built from vectors alone and cannot describe {kind}: send features, or build it with "
            "--pictures or --text",
            "no_describer",
        )
    made = {name: list(vector) for name, vector in (features or {}).items()}
    vectors, thumbnail = {}, None
    if picture is not None:
        found = describer.picture(picture)
        vectors, thumbnail = dict(found.vectors), thumbnail_file(found)
    if text is not None:
        vectors |= describer.words(text)
    if twice := sorted(made.keys() & vectors.keys()):
        raise DescriberError(f"modality {twice[0]!r} is in the features, and described too: leave out one of the two")
    return made | {name: vector.tolist() for name, vector in vectors.items()}, thumbnail
