"""The bodies of requests: queries, and changes of items as lines of JSON in batches."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from omdml.errors import ParameterError

# Numbers by modality: lists, or numpy arrays.
Vectors = Mapping[str, Iterable[float]]
# The most changes and bytes of one request. The node accepts more, but would take long to answer.
BATCH, BATCH_BYTES = 1000, 4 << 20


def query_body(
    query: str | Sequence[str] | None,
    features: Vectors | None = None,
    text: Mapping[str, str] | None = None,
    picture: bytes | None = None,
) -> dict[str, Any]:
    """The fields of a query in the body of a request; raises ParameterError for an id that is no text."""
    body: dict[str, Any] = {}
    if query is not None:
        if not _are_ids(query):
            raise ParameterError(f"query is {query!r:.80}, expected the id of an item as text, or a list of ids")
        body |= {"id": query} if isinstance(query, str) else {"ids": list(query)}
    if features is not None:
        body["features"] = numbers(features)
    if text is not None:
        body["text"] = dict(text)
    if picture is not None:
        body["picture"] = base64.b64encode(picture).decode()
    return body


def numbers(features: Vectors) -> dict[str, list[float]]:
    """Vectors as lists of floats, which JSON can hold; raises ParameterError if they are no lists of numbers."""
    for name, vector in features.items():
        if not _is_vector(vector):
            raise ParameterError(
                f"features[{name!r}] is {vector!r:.80}, expected the vector of a modality, a list of numbers. If it is "
                f"no vector, such as a price, give it as an attribute: attributes={{{name!r}: ...}}"
            )
    return {name: [float(x) for x in vector] for name, vector in features.items()}


# These two functions accept objects of any type, because callers without a type checker may pass anything.
def _are_ids(query: object) -> bool:
    return isinstance(query, Sequence) and all(isinstance(item, str) for item in query)


def _is_vector(vector: object) -> bool:
    return isinstance(vector, Iterable) and not isinstance(vector, str)


def line(change: Mapping[str, Any]) -> bytes:
    """A change as a line of JSON; its vectors may be arrays."""
    if change.get("features") is None:
        return msgspec.json.encode(change)
    return msgspec.json.encode({**change, "features": numbers(change["features"])})


def batches(lines: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Split lines into lists, one for each request."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) == BATCH or size + len(line) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    if batch:
        yield batch
