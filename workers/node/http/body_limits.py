"""How many bytes the body of a request may have."""

from __future__ import annotations

from omdml.streams.describers.pictures import MAX_SENT_BYTES

MAX_QUERY_BYTES = 1 << 20
# A body up to this size is parsed at once, because the hop to a thread would take longer.
INLINE_BYTES = 16_384
MAX_FEEDBACK_BYTES = 16 << 20
# Base64 makes four bytes of three bytes of a picture.
MAX_PICTURE_QUERY_BYTES = MAX_SENT_BYTES // 3 * 4 + MAX_QUERY_BYTES
# Requests that move a version to or from being live.
MAX_MOVE_BYTES = 1 << 12
# All bodies together that have come, whole or in part, and are not answered yet: four of the largest.
MAX_BODIES_BYTES = 64 << 20
