"""Which model an event is for, without decoding all of the event."""

from __future__ import annotations

import msgspec

from omdml.errors import FeedbackError
from omdml.feedback import MAX_EVENT_BYTES, MESSAGEPACK
from omdml.streams.protocols.log import Record
from omdml.workers.configuration.model_names import MAX_NAME, check_name
from omdml.workers.events.decoding import content_type


class ModelField(msgspec.Struct, gc=False):
    """The one field of an event that a router reads. Workers check the rest."""

    model: str


_json = msgspec.json.Decoder(ModelField)
_messagepack = msgspec.msgpack.Decoder(ModelField)


def key_of(record: Record) -> bytes | None:
    """The name of a record's model; None if no worker could learn the event, for any model."""
    if len(record.value) > MAX_EVENT_BYTES:
        return None
    kind = content_type(record.headers)
    try:
        model = (_messagepack if kind == MESSAGEPACK else _json).decode(record.value).model
        name = model.encode()
        # Percent-encoding makes at most three bytes of one. The full check takes as long as all the rest here.
        if 3 * len(name) > MAX_NAME:
            check_name(model)
        return name or None
    except (msgspec.DecodeError, UnicodeError, RecursionError, FeedbackError):
        return None
