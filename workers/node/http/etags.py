"""Which answers a client has already, by the tags that it sends in ``If-None-Match`` (RFC 9110, section 13.1.2)."""

from __future__ import annotations

import re

from starlette.requests import Request

# A tag, between quotes. Weak and strong tags are compared alike.
TAG = re.compile(r'(?:W/)?("[^"]*")')
ANY = "*"


def has(request: Request, tag: str) -> bool:
    """Whether the client has the answer with this tag."""
    return TAG.sub(r"\1", tag) in TAG.findall(_sent(request))


def has_any(request: Request) -> bool:
    """Whether the client sent ``*``: it has some answer, and wants none if any answer exists."""
    return _sent(request).strip() == ANY


def _sent(request: Request) -> str:
    return ", ".join(request.headers.getlist("if-none-match"))
