"""A network that can be cut: a TCP proxy in front of a server on the loopback."""

from __future__ import annotations

import contextlib
import socket
import threading

HOST = "127.0.0.1"
CHUNK = 65536


class Proxy:
    """Passes bytes on to a port of the loopback. While it is cut, nothing gets through, but connections stay open, and
    bytes on their way arrive late: as on a network that lost a route for a while.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self._joined = threading.Event()
        self._joined.set()
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def cut(self) -> None:
        """Let nothing through; connections stay open."""
        self._joined.clear()

    def join(self) -> None:
        """Let everything through again, after a cut."""
        self._joined.set()

    def close(self) -> None:
        """Take no more connections; those that are open end with their clients."""
        self.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._connect, client)

    def _connect(self, client: socket.socket) -> None:
        self._joined.wait()
        try:
            server = socket.create_connection((HOST, self.target))
        except OSError:
            # The server is down.
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._start(self._pass_on, client, server)
        self._start(self._pass_on, server, client)

    def _pass_on(self, sender: socket.socket, receiver: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := sender.recv(CHUNK):
                self._joined.wait()
                receiver.sendall(data)
        for end in (sender, receiver):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    @staticmethod
    def _start(work, *arguments) -> None:
        threading.Thread(target=work, args=arguments, daemon=True).start()
