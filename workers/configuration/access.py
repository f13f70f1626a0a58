"""Who may teach a node and move its versions: this machine, or whoever knows a token with that right."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from omdml.errors import ConfigurationError, OmdmlError

# What a header can carry (RFC 6750), and too long to be guessed.
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
MAKE_ONE = "make one with `openssl rand -hex 32 > token`, and set node.token_file"
SCHEME = "bearer "
# What the history calls whoever sends ``node.token``.
UNNAMED = "token"
Role = Literal["feedback", "items", "operator"]
# Who may do what a later one stands for may also do what comes before it.
ROLES: tuple[Role, ...] = ("feedback", "items", "operator")


class NamedToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several tokens. ``feedback`` may send events, ``items`` change items too, an ``operator`` all."""

    token: str
    role: Role

    def __repr__(self) -> str:
        return f"NamedToken(token='***', role={self.role!r})"


class Access:
    """The tokens of a node: ``token`` has all rights, those of ``named`` what their roles say."""

    def __init__(self, token: str = "", named: Mapping[str, NamedToken] | None = None) -> None:
        whole = {UNNAMED: NamedToken(token=token, role="operator")} if token else {}
        self._tokens: dict[str, NamedToken] = {**whole, **(named or {})}

    def __bool__(self) -> bool:
        """Whether there is a token at all."""
        return bool(self._tokens)

    @property
    def moves(self) -> bool:
        """Whether anybody may move versions."""
        return any(one.role == "operator" for one in self._tokens.values())

    def check(self, headers: Mapping[str, str], role: Role = "feedback") -> str:
        """Let a writing request in, and answer whose token it brings; raises AccessError.

        Without any token only this machine gets here; its browser may still be sent by a page of somebody else.
        """
        if not self._tokens:
            origin = headers.get("origin")
            if origin is not None and not is_local(origin):
                raise AccessError(f"a page of {origin!r} may not write here: set node.token, and send it", "forbidden")
            return ""
        sent = headers.get("authorization", "")
        known = sent[: len(SCHEME)].lower() == SCHEME
        secret = sent[len(SCHEME) :].strip().encode()
        # All are compared, so that the time says nothing of which one is nearly right.
        found = [name for name, one in self._tokens.items() if hmac.compare_digest(secret, one.token.encode())]
        if not known or not found:
            what = "this is not a token of this node" if known else "a token is needed"
            expected = "Authorization: Bearer TOKEN, that of node.token or one of node.tokens"
            raise AccessError(f"{what}: send {expected}", "unauthorized")
        own = self._tokens[found[0]].role
        if ROLES.index(own) < ROLES.index(role):
            raise AccessError(f"the token {found[0]!r} has the role {own}, this needs the role {role}", "forbidden")
        return found[0]


class AccessError(OmdmlError):
    """A request that is not let in: ``unauthorized`` without the token, ``forbidden`` whatever it sends."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


NO_TOKENS = Access()


def check_tokens(token: str, named: Mapping[str, NamedToken]) -> None:
    """Refuse tokens that are short, that no header can carry, or that are the same; none is shown.

    Raises ConfigurationError.
    """
    every = {"node.token": token} if token else {}
    every |= {f"node.tokens.{name}.token": one.token for name, one in named.items()}
    for where, text in every.items():
        if not TOKEN.fullmatch(text):
            expected = "16 or more letters, digits or -._~+/"
            raise ConfigurationError(f"{where}: {len(text)} characters (not shown), expected {expected}: {MAKE_ONE}")
    seen: dict[str, str] = {}
    for where, text in every.items():
        if (other := seen.setdefault(text, where)) != where:
            raise ConfigurationError(f"{where} is the same token as {other}: expected one of its own, so that the "
                                     "history can tell who moved a version")  # fmt: skip
    if UNNAMED in named and token:
        raise ConfigurationError(f"node.tokens.{UNNAMED}: the history calls node.token so: give it another name")


def check_reach(host: str, access: Access) -> None:
    """Refuse an address that other machines reach where anybody could teach; raises ConfigurationError."""
    if not access and not is_loopback(host):
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


def is_local(origin: str) -> bool:
    """Whether a page's origin, ``http://host:port``, is a server on this machine."""
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
