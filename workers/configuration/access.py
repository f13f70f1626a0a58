"""Who may read from a node, teach it and move its versions: this machine, or whoever knows a token with that right."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
import time
from collections.abc import Callable, Collection, Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from omdml.errors import ConfigurationError, OmdmlError, quoted
from omdml.workers.configuration.checks.mistakes import Mistakes

# What a header can carry (RFC 6750), and too long to be guessed.
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,}=*")
MAKE_ONE = "make one with `openssl rand -hex 32 > token`, and set node.token_file"
SCHEME = "bearer "
# What the history calls whoever sends ``node.token``.
UNNAMED = "token"
Role = Literal["read", "feedback", "items", "operator"]
# Whoever has a role may also do what the ones before it may.
ROLES: tuple[Role, ...] = ("read", "feedback", "items", "operator")
# What a page of another origin is: a scheme, a host, perhaps a port.
ORIGIN = re.compile(r"https?://[^\s/?#@:]+(:\d{1,5})?|https?://\[[0-9a-fA-F:.]+\](:\d{1,5})?")
ANY = "*"
MAX_PER_S = 1_000_000


class NamedToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of several tokens, with a role.

    ``read`` may only read, ``feedback`` also sends events, ``items`` also changes items, ``operator`` may do all. The
    token may make ``max_per_s`` requests a second, and as many at once; 0 is any number.
    """

    token: str
    role: Role
    max_per_s: float = 0.0

    def __repr__(self) -> str:
        return f"NamedToken(token='***', role={self.role!r}, max_per_s={self.max_per_s})"


class Access:
    """The tokens of a node: ``token`` has all rights, those of ``named`` what their roles say.

    Parameters
    ----------
    private
        Whether reading needs a token too.
    origins
        The origins of pages on other servers that may ask this node from a browser; ``*`` lets any page read.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        token: str = "",
        named: Mapping[str, NamedToken] | None = None,
        private: bool = False,
        origins: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        main_token = {UNNAMED: NamedToken(token=token, role="operator")} if token else {}
        self._tokens: dict[str, NamedToken] = {**main_token, **(named or {})}
        self.private, self.origins = private, tuple(origins)
        self._rates = {name: Rate(config.max_per_s, clock) for name, config in self._tokens.items() if config.max_per_s}
        self._cookies = {name: cookie_of(config.token) for name, config in self._tokens.items()}

    def __bool__(self) -> bool:
        """Whether there is a token at all."""
        return bool(self._tokens)

    @property
    def moves(self) -> bool:
        """Whether any token allows its holder to move versions."""
        return any(token.role == "operator" for token in self._tokens.values())

    def check(self, headers: Mapping[str, str], role: Role = "feedback") -> str:
        """Let a writing request in, and answer whose token it brings; raises AccessError.

        Without any token only this machine gets here. But a page of somebody else in its browser may have sent this.
        """
        if not self._tokens:
            origin = headers.get("origin")
            if origin is not None and not is_local(origin) and origin not in self.origins:
                message = (
                    f"a page of {origin!r} may not write here: set node.token, and send it, or name it in node.origins"
                )
                raise AccessError(message, "forbidden")
            return ""
        name = self._token_name(headers)
        if not name:
            raise self._unauthorized(headers)
        token_role = self._tokens[name].role
        if ROLES.index(token_role) < ROLES.index(role):
            raise AccessError(f"the token {name!r} has the role {token_role}, this needs the role {role}", "forbidden")
        return name

    def admit(self, headers: Mapping[str, str], is_open: bool) -> None:
        """Let a request in that anybody may make, or that may at least read, and count it for its token.

        Raises AccessError.
        """
        name = self._token_name(headers) or self._session_name(headers)
        if name in self._rates and not self._rates[name].take():
            max_per_s = self._tokens[name].max_per_s
            raise AccessError(
                f"the token {name!r} may make {max_per_s:g} requests a second: send this again later", "too_many"
            )
        if self.private and not is_open and not name:
            raise self._unauthorized(headers)

    def session(self, headers: Mapping[str, str]) -> tuple[str, str]:
        """The cookie, name and value, by which a browser reads what it cannot send a token for; raises AccessError.

        Whoever has it knew the token, which cannot be computed from it. Nobody can write with it.
        """
        return self._cookies[self.check(headers, "read")]

    def _token_name(self, headers: Mapping[str, str]) -> str:
        """The name of the token that a request brings; empty if it brings none, or one that this node does not have."""
        sent = headers.get("authorization", "")
        if sent[: len(SCHEME)].lower() != SCHEME:
            return ""
        secret = sent[len(SCHEME) :].strip().encode()
        # All are compared, so that the time says nothing of which one is nearly right.
        names = [name for name, token in self._tokens.items() if hmac.compare_digest(secret, token.token.encode())]
        return names[0] if names else ""

    def _session_name(self, headers: Mapping[str, str]) -> str:
        """The name of the token whose session a request brings; empty if it brings none."""
        # Browsers send the cookies of every other program on this host too, which may hold anything, such as JSON.
        cookies = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
        for name, (cookie, value) in self._cookies.items():
            if any(sent == cookie and hmac.compare_digest(text.encode(), value.encode()) for sent, _, text in cookies):
                return name
        return ""

    @staticmethod
    def _unauthorized(headers: Mapping[str, str]) -> AccessError:
        sent = headers.get("authorization", "")[: len(SCHEME)].lower() == SCHEME
        what = "this is not a token of this node" if sent else "a token is needed"
        expected = "Authorization: Bearer TOKEN, that of node.token or one of node.tokens"
        return AccessError(f"{what}: send {expected}", "unauthorized")


class Rate:
    """A limit of requests a second. After a second of silence as many may come at once."""

    def __init__(self, per_s: float, clock: Callable[[], float]) -> None:
        self._per_s, self._clock = per_s, clock
        self._remaining, self._counted_at = per_s, clock()

    def take(self) -> bool:
        """Take one; False if none is left just now."""
        now = self._clock()
        self._remaining = min(self._per_s, self._remaining + (now - self._counted_at) * self._per_s)
        self._counted_at = now
        if self._remaining < 1:
            return False
        self._remaining -= 1
        return True


def cookie_of(token: str) -> tuple[str, str]:
    """Name and value of the cookie that stands for a token. The name tells nodes of one machine apart."""
    value = hmac.new(token.encode(), b"omdml session", hashlib.sha256).hexdigest()
    return f"omdml-{hashlib.sha256(value.encode()).hexdigest()[:8]}", value


class AccessError(OmdmlError):
    """A request that is not let in: ``unauthorized`` without a token, ``forbidden`` with this one, ``too_many`` now."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


NO_TOKENS = Access()


def check_tokens(token: str, named: Mapping[str, NamedToken]) -> None:
    """Refuse tokens that are short, that no header can carry, or that are the same; none is shown.

    Raises ConfigurationError.
    """
    mistakes = Mistakes()
    all_tokens = {"node.token": token} if token else {}
    all_tokens |= {f"node.tokens.{name}.token": config.token for name, config in named.items()}
    for where, text in all_tokens.items():
        if not TOKEN.fullmatch(text):
            expected = "16 or more letters, digits or -._~+/"
            mistakes.note(f"{where}: {len(text)} characters (not shown), expected {expected}: {MAKE_ONE}")
    seen: dict[str, str] = {}
    for where, text in all_tokens.items():
        if (other := seen.setdefault(text, where)) != where:
            mistakes.note(
                f"{where} is the same token as {other}: expected one of its own, so that the history can tell who "
                "moved a version"
            )
    if UNNAMED in named and token:
        mistakes.note(f"node.tokens.{UNNAMED}: the history calls node.token by this name: choose another")
    mistakes.report()


def check_pages(private: bool, origins: Collection[str], named: Mapping[str, NamedToken], access: Access) -> None:
    """Refuse what is not an origin, rates out of range, and a private node that nobody could read.

    Raises ConfigurationError.
    """
    mistakes = Mistakes()
    if private and not access:
        mistakes.note(f"node.private asks for a token, and there is none: {MAKE_ONE}")
    for origin in origins:
        if origin != ANY and not ORIGIN.fullmatch(origin):
            expected = 'expected an origin such as "https://shop.example", without a path, or "*"'
            mistakes.note(f"node.origins holds {quoted(origin)}, {expected}")
    for name, token in named.items():
        # Below one a second, a token would have to wait for longer than it is told.
        if not (token.max_per_s == 0 or 1 <= token.max_per_s <= MAX_PER_S):
            problem = f"{token.max_per_s:g}, expected 1 to {MAX_PER_S:,} requests a second, or 0 for any number"
            mistakes.note(f"node.tokens.{name}.max_per_s is {problem}")
    mistakes.report()


def check_reach(host: str, access: Access) -> None:
    """Refuse an address that other machines reach if anybody could teach there; raises ConfigurationError."""
    if not access and not is_loopback(host):
        raise ConfigurationError(
            f"node.bind is at {host}, which other machines reach, and there is no node.token: anybody could teach the "
            f"models; {MAKE_ONE}, or bind to 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        addresses = socket.getaddrinfo(host, None)
    except (OSError, UnicodeError):
        # This is no host. What binds to it says so.
        return True
    return all(ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in addresses)


def is_local(origin: str) -> bool:
    """Whether a page's origin, ``http://host:port``, is a server on this machine."""
    try:
        host = urlsplit(origin).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
