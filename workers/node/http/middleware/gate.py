"""What every request to a node passes before it is answered: whom it asks for, and how much memory all bodies take."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omdml.errors import OmdmlError
from omdml.workers.configuration.access import Access, is_local
from omdml.workers.configuration.process import give_memory_back
from omdml.workers.node.http.body_limits import MAX_BODIES_BYTES

# A host and perhaps a port, and nothing else that an address may have: no user, no path, no query.
AUTHORITY = re.compile(r"([^\s@/?#\\\[\]:]+|\[[^\s@/?#\\\[\]]+\])(:[0-9]{0,5})?")
# If all bodies together took so many bytes, memory that the C library keeps for later is given back to the system.
LARGE_BYTES = 1 << 20
# It is given back so many seconds later, once for all requests that ended meanwhile.
TRIM_AFTER_S = 1.0


class ForeignHost(OmdmlError):
    """A request that names another host than this node."""

    reason = "foreign_host"


class Busy(OmdmlError):
    """A body for which there is no room just now."""

    reason = "busy"


class Hosts:
    """Lets only requests in that ask for this node by one of its names, in their header ``Host``.

    A page of somebody else can give its own name the address 127.0.0.1 (DNS rebinding). The browser then takes what the
    node answers for the page's own, but still sends the page's name.

    Parameters
    ----------
    names
        Those beside this machine's own, ``localhost`` and loopback addresses.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        for host in Headers(scope=scope).getlist("host"):
            if not self._knows(host.lower()):
                raise ForeignHost(
                    f"this node is not {host!r}: it answers only to localhost, to loopback addresses, to the host in "
                    "node.bind and to the names in node.hosts. Ask for one of these, or add the name to node.hosts"
                )
        await self._app(scope, receive, send)

    def _knows(self, host: str) -> bool:
        """Whether a name, with or without a port, is one of this node."""
        if not AUTHORITY.fullmatch(host):
            return False
        name, _, port = host.rpartition(":")
        return host in self._names or (port.isdigit() and name in self._names) or is_local(f"http://{host}")


class Tokens:
    """Lets only requests in that may at least read, if the node is private, and counts requests of tokens.

    Parameters
    ----------
    is_open
        Whether a path is answered to anybody.
    """

    def __init__(self, app: ASGIApp, access: Access, is_open: Callable[[str], bool]) -> None:
        self._app, self._access, self._is_open = app, access, is_open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._access.admit(Headers(scope=scope), self._is_open(scope["path"]))
        await self._app(scope, receive, send)


class Bodies:
    """Bounds the memory that the bodies of all requests take together, from when they come until they are answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._held, self._trimming = app, 0, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on; reading a body raises Busy as soon as all of them together are too large."""
        held = 0

        async def counted() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            if self._held + size > MAX_BODIES_BYTES:
                raise Busy(
                    f"this node is taking in {self._held} bytes of bodies just now, at most {MAX_BODIES_BYTES} at "
                    "once: send this again a little later, or smaller bodies"
                )
            held += size
            self._held += size
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            large = held and self._held >= LARGE_BYTES
            self._held -= held
            if large and not self._trimming:
                self._trimming = True
                asyncio.get_running_loop().call_later(TRIM_AFTER_S, self._trim)

    def _trim(self) -> None:
        self._trimming = False
        give_memory_back()
