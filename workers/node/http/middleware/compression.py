"""Long answers are compressed for clients that take gzip."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import Receive, Scope, Send

NAME = b"accept-encoding"
REFUSED = re.compile(r"gzip\s*;\s*q=0(\.0*)?\s*(,|$)", re.IGNORECASE)


class Compressed(GZipMiddleware):
    """Compresses as Starlette does, but not for clients that refuse gzip (``gzip;q=0``), which Starlette overlooks."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if REFUSED.search(", ".join(Headers(scope=scope).getlist(NAME.decode()))):
            scope["headers"] = [field for field in scope["headers"] if field[0] != NAME]
        await super().__call__(scope, receive, send)
