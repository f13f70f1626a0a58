"""What systemd is told, as it would hear it: datagrams at a socket."""

from __future__ import annotations

import os
import socket
from contextlib import suppress

import pytest

from omdml.workers.telemetry.condition import STARTING, Condition, ConditionSource, Messenger, pause_s
from tests.support.waiting import until

LEARNING = Condition(started=True, alive=True, ready=True, stopping=False, status="learning,\n4 partitions")


@pytest.fixture(params=["file", "abstract"])
def systemd(request, tmp_path, monkeypatch):
    """A socket as systemd has one."""
    name = f"omdml-test-{os.getpid()}"
    bound_to, address = (f"\0{name}", f"@{name}") if request.param == "abstract" else (str(tmp_path / "s"),) * 2
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(bound_to)
        listening.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        yield listening


def heard(listening):
    """Lines of all messages that came so far."""
    lines = []
    while True:
        try:
            lines += listening.recv(4096).decode().split("\n")
        except BlockingIOError:
            return lines


def test_states_are_reported_once_and_the_watchdog_as_long_as_it_is_alive(systemd):
    facts = ConditionSource()
    messenger = Messenger(facts)
    messenger.tell()
    assert heard(systemd) == ["STATUS=starting", "WATCHDOG=1"]
    facts.ask = lambda: LEARNING
    messenger.tell()
    messenger.tell()
    assert heard(systemd) == ["READY=1", "STATUS=learning, 4 partitions", "WATCHDOG=1", "WATCHDOG=1"]
    facts.ask = lambda: LEARNING._replace(alive=False, status="stuck")
    messenger.tell()
    messenger.tell()
    assert heard(systemd) == ["STATUS=stuck"]
    facts.ask = lambda: LEARNING._replace(stopping=True, status="draining")
    messenger.tell()
    assert heard(systemd) == ["STOPPING=1", "STATUS=draining", "WATCHDOG=1"]


def test_a_thread_tells_systemd_as_often_as_the_watchdog_asks(systemd, monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    lines = []
    facts = ConditionSource()
    facts.ask = lambda: LEARNING
    with Messenger(facts):
        until(lambda: lines.extend(heard(systemd)) or lines.count("WATCHDOG=1") >= 3)
        facts.ask = lambda: LEARNING._replace(stopping=True)
    lines += heard(systemd)
    assert (lines.count("READY=1"), lines.count("STOPPING=1")) == (1, 1)


def fill(address):
    """Send to a socket until nobody can send to it any more."""
    sent = 1
    while sent:
        sent = 0
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other, suppress(BlockingIOError):
            other.setblocking(False)
            while True:
                other.sendto(b"full", address)
                sent += 1


def test_messages_that_systemd_could_not_take_are_sent_again(systemd):
    messenger = Messenger(lambda: LEARNING)
    fill(systemd.getsockname())
    messenger.tell()
    assert set(heard(systemd)) == {"full"}
    messenger.tell()
    assert heard(systemd) == ["READY=1", "STATUS=learning, 4 partitions", "WATCHDOG=1"]


def test_the_watchdog_of_another_process_is_ignored(monkeypatch):
    monkeypatch.setenv("WATCHDOG_USEC", "20000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert pause_s() == 1.0
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert pause_s() == 0.01


def test_without_systemd_nothing_is_sent_and_no_thread_runs(monkeypatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    with Messenger(lambda: STARTING) as messenger:
        assert messenger._thread.ident is None


def test_a_socket_that_is_gone_harms_nobody(monkeypatch, tmp_path):
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    with Messenger(lambda: LEARNING) as messenger:
        messenger.tell()
        assert messenger._thread.is_alive()
