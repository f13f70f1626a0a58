"""More connections than files that a process may open by default: a node raises that limit itself, and answers on."""

from __future__ import annotations

import contextlib
import resource
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.support.nodes import start_node, stored_shop
from tests.support.processes import Process, wait_for

SOFT = 128


@contextlib.contextmanager
def few_files() -> Iterator[None]:
    """What is started here begins with a small soft limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def answers(port: int) -> bool:
    """Whether a search is answered soon."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/search?id=i1&k=1", timeout=3) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def test_a_node_answers_under_more_connections_than_files_it_began_with(tmp_path: Path) -> None:
    stored_shop(tmp_path)
    with few_files():
        node, port = start_node(tmp_path)
    try:
        wait_for(lambda: answers(port), "the node", process=node)
        assert_unmoved(node, port)
    finally:
        node.close()


def assert_unmoved(node: Process, port: int) -> None:
    """The node answers and logs little while 400 connections say nothing."""
    with contextlib.ExitStack() as held:
        for _ in range(400):
            held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        assert answers(port), node.said[-500:]
    assert len(node.said) < 10_000
