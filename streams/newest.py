"""The newest records of a log, as files and Kafka answer them."""

from __future__ import annotations

from typing import NamedTuple

from omdml.streams.protocols.log import Record

# How many events of each partition are looked at: the newest ones.
EVENTS = 200


class Newest(NamedTuple):
    """Records, oldest first within each partition; ``whole`` if there are no others in the log."""

    records: list[Record]
    whole: bool
