"""The newest records of a log, as files and Kafka answer them."""

from __future__ import annotations

from typing import NamedTuple

from omdml.streams.protocols import Record

EVENTS = 200  # that are looked at, the newest of each partition


class Newest(NamedTuple):
    """Records, oldest first within each partition; ``whole`` if there are no others in the log."""

    records: list[Record]
    whole: bool
