"""What every request to a node passes before it is answered: whom it asks for, and how much memory all bodies take."""

from __future__ import annotations

from collections.abc import Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workers.access import AccessError, is_local

# Bytes of all bodies that have come, whole or in part, and are not answered yet: four of the largest.
MAX_BODIES_BYTES = 64 << 20


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
        """Raise AccessError ``foreign_host``, or go on."""
        for host in Headers(scope=scope).getlist("host"):
            if not self._knows(host.lower()):
                raise AccessError(
                    f"this node is not {host!r}: a node without node.token answers only to localhost, to addresses of "
                    "this machine, and to the names in node.hosts; ask for one of these, or add the name there",
                    "foreign_host",
                )
        await self._app(scope, receive, send)

    def _knows(self, host: str) -> bool:
        """Whether a name, with or without a port, is one of this node."""
        name, _, port = host.rpartition(":")
        return host in self._names or (port.isdigit() and name in self._names) or is_local(f"http://{host}")


class Bodies:
    """Bounds what the bodies of all requests together take until these are answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._held = app, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Go on; reading a body raises AccessError ``busy`` as soon as all of them are too large."""
        held = 0

        async def counted() -> Message:
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            if self._held + size > MAX_BODIES_BYTES:
                raise AccessError(
                    f"this node is taking in {self._held} bytes of bodies just now, at most {MAX_BODIES_BYTES} at "
                    "once: send this again a little later, or smaller bodies",
                    "busy",
                )
            held += size
            self._held += size
            return message

        try:
            await self._app(scope, counted, send)
        finally:
            self._held -= held
