"""Who may teach a node and move its versions: this machine, or whoever knows the token."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from omdml.errors import ConfigurationError, OmdmlError

# What a header can carry (RFC 6750), and too long to be guessed.
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
MAKE_ONE = "make one with `openssl rand -hex 32 > token`, and set node.token_file"
SCHEME = "bearer "


class AccessError(OmdmlError):
    """A request that is not let in: ``unauthorized`` without the token, ``forbidden`` whatever it sends."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def check_token(token: str) -> None:
    """Refuse a token that is short, or that no header can carry; raises ConfigurationError, which does not show it."""
    if token and not TOKEN.fullmatch(token):
        expected = "16 or more letters, digits or -._~+/"
        raise ConfigurationError(f"node.token: {len(token)} characters (not shown), expected {expected}: {MAKE_ONE}")


def check_reach(host: str, token: str) -> None:
    """Refuse an address that other machines reach where anybody could teach; raises ConfigurationError."""
    if not token and not is_loopback(host):
        raise ConfigurationError(
            f"node.bind is at {host}, which other machines reach, and there is no node.token: anybody could teach the "
            f"models; {MAKE_ONE}, or bind to 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        found = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):  # no host: what binds says so
        return True
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def check_access(headers: Mapping[str, str], token: str) -> None:
    """Let a writing request in, or raise AccessError.

    Without a token only this machine gets here; its browser may still be sent by a page of somebody else.
    """
    if not token:
        origin = headers.get("origin")
        if origin is not None and not is_local(origin):
            raise AccessError(f"a page of {origin!r} may not write here: set node.token, and send it", "forbidden")
        return
    sent = headers.get("authorization", "")
    known = sent[: len(SCHEME)].lower() == SCHEME
    if not known or not hmac.compare_digest(sent[len(SCHEME) :].strip().encode(), token.encode()):
        what = "this is not the token" if known else "a token is needed"
        raise AccessError(f"{what}: send Authorization: Bearer TOKEN, that of node.token", "unauthorized")


def is_local(origin: str) -> bool:
    """Whether a page's origin, ``http://host:port``, is a server on this machine."""
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
