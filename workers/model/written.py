"""What a write to the store came to, for a worker that must know that it was made."""

from __future__ import annotations

from omdml.errors import Fenced
from omdml.streams.placement import PlacementChanged
from omdml.streams.protocols.store import Written


def check_written(answer: Written, topic_id: str, if_fenced: str) -> Written:
    """The answer to a write about a model of this log.

    Raises PlacementChanged if the log's models were placed elsewhere, and Fenced with the message ``if_fenced`` if the
    model has another owner. Nothing was written then.
    """
    if answer is Written.MOVED:
        raise PlacementChanged(topic_id)
    if answer is Written.FENCED:
        raise Fenced(if_fenced)
    return answer
