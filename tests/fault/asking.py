"""What a client of a node sees."""

from __future__ import annotations

import http.client
import json
import threading


def version_served(port: int, model: str = "shop") -> int | None:
    """The version that the node at this port of the loopback answers a search with; None if it does not answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", f"/search?model={model}&id=i1&k=3")
        answer = connection.getresponse()
        body = json.loads(answer.read())
        return body["version"] if answer.status == 200 else None
    except OSError:
        return None
    finally:
        connection.close()


class Asker(threading.Thread):
    """Searches at a node, again and again, until :meth:`end`; ``versions`` are those of all answers, in order."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port, self.enough = port, threading.Event()
        self.versions: list[int | None] = []
        self.start()

    def run(self) -> None:
        # More often than versions come. The pause leaves the processor to those who are asked.
        while not self.enough.wait(0.02):
            self.versions.append(version_served(self.port))

    @property
    def newest(self) -> int:
        """The highest version so far; -1 before the first answer."""
        return max((version for version in self.versions if version is not None), default=-1)

    def end(self) -> None:
        self.enough.set()
        self.join()
