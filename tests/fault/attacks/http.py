"""Attacks over HTTP on a real node without a token, by clients on the same machine; nothing here knows a secret."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omdml.workers.configuration.process import COLLECT_EVERY_S
from tests.fault.attacks.attack import Attack, Measured
from tests.support.nodes import start_node, stored_shop
from tests.support.processes import wait_for
from tests.support.waiting import comes_true

HEAD_LIMIT = 64 << 10
# What a node may grow by under any of these: the bodies it takes at once are 64 MB, heads and what was read ahead come
# on top.
GROWTH_MB = 200
# What of it may stay after the attackers left.
STAYS_MB = 40
FLOOD_S = 5.0
SLOW_S = 0.5
MEGABYTE = 1 << 20


class Node:
    """A real node with a version live, its memory, and connections to it."""

    def __init__(self, folder: Path) -> None:
        stored_shop(folder)
        self.process, self.port = start_node(folder)
        wait_for(lambda: self.answers("/readyz"), "the node to be ready", process=self.process)
        # The first requests import and allocate what stays.
        for _ in range(50):
            self.answers("/search?id=i1")

    def answers(self, path: str, timeout_s: float = 30.0) -> bool:
        """Whether an honest request is answered with 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=40)

    @property
    def memory_mb(self) -> float:
        """Resident memory of the process in MB."""
        pages = int(Path(f"/proc/{self.process._child.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / MEGABYTE

    @property
    def cpu_s(self) -> float:
        """Seconds that it has computed so far."""
        fields = Path(f"/proc/{self.process._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def exchange(self, words: bytes) -> bytes:
        """Send some bytes; returns the answer up to the end of the connection."""
        answer = b""
        with self.connect() as connection, contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(words)
            while part := connection.recv(65536):
                answer += part
        return answer


@contextlib.contextmanager
def node(folder: Path) -> Iterator[Node]:
    """A real node that is attacked."""
    attacked = Node(folder)
    try:
        yield attacked
    finally:
        attacked.process.close()


class Grown(NamedTuple):
    """Megabytes by which a node grew: the peak during the attack, and what was left some time after it."""

    peak: float
    after: float


def grown(attacked: Node, attack: Callable[[], None]) -> Grown:
    """Attack, and watch the node's memory."""
    before = peak = attacked.memory_mb
    attacker = threading.Thread(target=attack)
    attacker.start()
    while attacker.is_alive():
        peak = max(peak, attacked.memory_mb)
        attacker.join(0.02)
    wait_for(lambda: attacked.answers("/search?id=i1"), "honest clients to be answered again")
    # What was freed goes back some moments after the connections are closed, or when the node gives memory back.
    comes_true(lambda: attacked.memory_mb - before < STAYS_MB, 1.2 * COLLECT_EVERY_S)
    return Grown(peak - before, attacked.memory_mb - before)


def within(growth: Grown) -> Measured:
    """Whether memory stayed within the bound, and was given back."""
    withstood = growth.peak < GROWTH_MB and growth.after < STAYS_MB
    return Measured(f"{growth.peak:.0f} MB, {growth.after:.0f} MB afterwards", withstood)


def flood(attacked: Node, begin: bytes, piece: bytes, connections: int) -> None:
    """Open connections, and send the same piece on each for ever, beginning again if the node ends one."""

    def hold_connection() -> None:
        deadline = time.monotonic() + FLOOD_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), attacked.connect() as connection:
                connection.sendall(begin)
                while time.monotonic() < deadline:
                    connection.sendall(piece)

    threads = [threading.Thread(target=hold_connection) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


CHUNKED = b"POST /search HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"


def endless_trailers(folder: Path) -> Measured:
    """Trailers of short fields, on two connections."""
    with node(folder) as attacked:
        return within(grown(attacked, lambda: flood(attacked, CHUNKED + b"0\r\n", b"a:b\r\n" * 20_000, 2)))


def endless_trailer(folder: Path) -> Measured:
    """One trailer that does not end, on two connections."""
    with node(folder) as attacked:
        return within(grown(attacked, lambda: flood(attacked, CHUNKED + b"0\r\na: ", b"b" * 100_000, 2)))


def endless_head(folder: Path) -> Measured:
    """Fields of a head without end, on two connections."""
    begin = b"GET /search HTTP/1.1\r\nhost: localhost\r\n"
    with node(folder) as attacked:
        return within(grown(attacked, lambda: flood(attacked, begin, b"a:b\r\n" * 20_000, 2)))


def hold(attacked: Node, connections: int, pieces: Sequence[bytes]) -> None:
    """Send these pieces on each of many connections, and close them only when all were sent."""
    connections_held = []
    for _ in range(connections):
        connection = attacked.connect()
        connections_held.append(connection)
        with contextlib.suppress(OSError):
            for piece in pieces:
                connection.sendall(piece)
    for connection in connections_held:
        connection.close()


def half_sent_bodies(folder: Path) -> Measured:
    """150 bodies of 16 MB, each without its last byte."""
    size = 16 * MEGABYTE
    head = f"POST /feedback HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n".encode()
    piece = b" " * MEGABYTE

    with node(folder) as attacked:
        return within(grown(attacked, lambda: hold(attacked, 150, [head, *[piece] * 15])))


def half_sent_heads(folder: Path) -> Measured:
    """900 heads of 63,000 bytes in short fields, each without its end."""
    head = b"GET /search HTTP/1.1\r\nhost: localhost\r\n" + b"".join(
        b"a%d: %s\r\n" % (i, b"b" * 700) for i in range(88)
    )

    with node(folder) as attacked:
        return within(grown(attacked, lambda: hold(attacked, 900, [head])))


def huge_heads(folder: Path) -> Measured:
    """Heads of 65,537 to 250,000 bytes, whole, in one piece."""
    with node(folder) as attacked:
        answered = [size for size in (HEAD_LIMIT + 1, 70_000, 250_000) if searched(attacked, size)]
        return Measured(f"answered: {answered or 'none'}", held=not answered)


def searched(attacked: Node, size: int) -> bool:
    """Whether a search with a head of this size is answered."""
    head = b"GET /search?id=i1 HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * size + b"\r\n\r\n"
    return b'"items"' in attacked.exchange(head)


def slow_heads(folder: Path) -> Measured:
    """A byte of a head every half second (:data:`SLOW_S`), on 50 connections: how long the last is kept."""
    with node(folder) as attacked:
        began, open_connections = time.monotonic(), [attacked.connect() for _ in range(50)]
        for connection in open_connections:
            connection.sendall(b"GET /models HTTP/1.1\r\nhost: localhost\r\nx: ")
        while open_connections and time.monotonic() - began < 60:
            for connection in list(open_connections):
                try:
                    connection.sendall(b"y")
                except OSError:
                    open_connections.remove(connection)
            # The attack is slowness: a byte now and then keeps a connection from looking idle.
            time.sleep(SLOW_S)
        took = time.monotonic() - began
        return Measured(f"{took:.0f} s", held=not open_connections and took < 35)


def pipelining(folder: Path) -> Measured:
    """Requests sent ahead without reading answers, on 20 connections."""
    ask = b"GET /schema HTTP/1.1\r\nhost: localhost\r\n\r\n" * 500
    with node(folder) as attacked:
        return within(grown(attacked, lambda: flood(attacked, b"", ask, 20)))


def tiny_chunks(folder: Path) -> Measured:
    """A body of 2 MB in chunks of one byte: how long the node computes, and so answers no other client."""
    with node(folder) as attacked:
        before = attacked.cpu_s
        with attacked.connect() as connection, contextlib.suppress(OSError):
            connection.sendall(CHUNKED + b"1\r\nx\r\n" * (2 * MEGABYTE // 6))
            connection.recv(65536)
        wait_for(lambda: attacked.answers("/search?id=i1"), "honest clients to be answered again")
        spent = (attacked.cpu_s - before) / 2
        return Measured(f"{spent:.2f} s", held=spent < 1)


def foreign_host(folder: Path) -> Measured:
    """The names that a page of somebody else can send, on every path that reads."""
    hosts = ("evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example")
    paths = ("/search?id=i1", "/models", "/metrics", "/readyz", "/schema")
    with node(folder) as attacked:
        ask = "GET {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n"
        answers = [attacked.exchange(ask.format(path, host).encode()) for host in hosts for path in paths]
        read = sum(b" 200 " in answer for answer in answers)
        return Measured(f"{read} of {len(answers)} were answered", held=read == 0)


def garbage(folder: Path) -> Measured:
    """Random bytes, a TLS hello and broken requests; honest searches go on."""
    draw = np.random.default_rng(0)
    words = [draw.bytes(int(size)) for size in draw.integers(1, 5000, 100)]
    words += [
        b"\x16\x03\x01\x02\x00" * 50,
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n",
        b"POST /search HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n{}",
        b"POST /search HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"GET /search?id=%00%ff HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    ]
    with node(folder) as attacked:
        failures = 0
        for word in words:
            with attacked.connect() as connection, contextlib.suppress(OSError):
                connection.sendall(word)
                connection.shutdown(socket.SHUT_WR)
                failures += b" 500 " in connection.recv(65536)
        answered = attacked.answers("/search?id=i1")
        value = f"{failures} answers 500 to {len(words)}, honest searches {'go on' if answered else 'fail'}"
        return Measured(value, held=failures == 0 and answered)


GROWTH = f"memory grows by less than {GROWTH_MB} MB, and less than {STAYS_MB} MB stay"
ATTACKS = [
    Attack("endless trailers, 2 connections", GROWTH, endless_trailers, quick=True),
    Attack("one endless trailer, 2 connections", GROWTH, endless_trailer),
    Attack("endless heads, 2 connections", GROWTH, endless_head),
    Attack("900 half-sent heads of 63 kB", GROWTH, half_sent_heads),
    Attack("150 half-sent bodies of 16 MB", GROWTH, half_sent_bodies, quick=True),
    Attack("heads longer than 64 KiB", "none is answered", huge_heads, quick=True),
    Attack("slow heads, 50 connections", "all are ended within 35 s", slow_heads),
    Attack("requests sent ahead, 20 connections", GROWTH, pipelining),
    Attack("chunks of one byte", "a megabyte costs less than 1 s of one core", tiny_chunks, quick=True),
    Attack("foreign names in Host", "none is answered", foreign_host, quick=True),
    Attack("garbage", "no answer 500, and honest searches go on", garbage, quick=True),
]
