"""Searches by words and pictures become searches by the vectors that describe them."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from omdml.streams.describers.describer import Describer
from omdml.streams.describers.features import features_of
from omdml.streams.protocols.catalogue import Catalogue
from omdml.workers.node.http.requests import OneQuery, Search

AnyQuery = TypeVar("AnyQuery", OneQuery, Search)


def described(catalogue: Catalogue, asked: Search) -> Search:
    """The same search with features for words and pictures.

    Raises DescriberError (``no_describer``, ``bad_picture``, ``no_known_word``, ``oversize``, ``invalid``), or
    CatalogueError if a library is missing here.
    """
    describer = catalogue.describer
    if asked.queries is None:
        return _with_features(describer, asked)
    queries = [_with_features(describer, query) for query in asked.queries]
    return msgspec.structs.replace(asked, queries=queries)


def describes(catalogue: Catalogue) -> dict[str, Any]:
    """What a search may bring instead of an item: columns of text, a picture or none, and vectors of these lengths."""
    describer = catalogue.describer
    return {
        "texts": list(describer.texts) if describer else [],
        "picture": bool(describer and describer.pictures),
        "vectors": dict(catalogue.raw_dims),
    }


def _with_features(describer: Describer | None, query: AnyQuery) -> AnyQuery:
    if query.text is None and query.picture is None:
        return query
    features, _ = features_of(describer, query.features, query.text, query.picture)
    return msgspec.structs.replace(query, features=features, text=None, picture=None)
