"""Options of a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict


class Options(TypedDict, total=False):
    """Options of a search.

    Parameters
    ----------
    offset
        Number of items to skip, for the pages after the first.
    exclude
        Ids that must not be in the answer.
    filter, fields
        Which items may be in the answer, and which of their attributes to return (deploy/SEARCH.md).
    expand
        Number of nearest items, 0 to 100, with which the node searches a second time: from the mean of the query and
        these. 0 for a single search. By default the model's configuration decides.
    explain
        Whether to return the ``parts`` of each item's distance.
    task
        The task whose sense of "similar" counts, if the model has tasks.
    version
        An older version, which the store still keeps, that should answer instead of the live one.
    min_version
        The lowest version that may answer. The client retries for ``retry_s`` seconds, then it raises
        :class:`~omdml.client.errors.Behind`.
    session
        Id of the user's session, for experiments: either all searches of a session are part of one, or none.
    model
        Name of the model, instead of the client's.
    """

    offset: int
    exclude: Sequence[str]
    filter: Mapping[str, Any] | None
    fields: Sequence[str]
    expand: int | None
    explain: bool
    task: str | None
    version: int | None
    min_version: int | None
    session: str | None
    model: str | None
