"""Lines of a process's own log: what they hold, and that the process goes on if nobody can write them."""

from __future__ import annotations

import errno
import io

import pytest
import structlog

from omdml.workers.configuration.process import configure_log
from tests.support.worlds import World, events, run_until_idle


@pytest.fixture
def log_lines():
    """What is logged as processes log it, line by line."""
    before, factory = structlog.get_config(), structlog.testing.CapturingLoggerFactory()
    configure_log()
    structlog.configure(logger_factory=factory)
    yield lambda: [call.args[0] for call in factory.logger.calls]
    structlog.configure(**before)


def test_an_error_without_a_traceback_says_nothing_of_one(log_lines):
    structlog.get_logger().error("store_lost", error="out of reach", exc_info=False)
    (line,) = log_lines()
    assert line.endswith('level=error event=store_lost error="out of reach"')


def test_a_failure_nobody_foresaw_brings_its_traceback_in_one_line(log_lines):
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        structlog.get_logger().exception("refresh_failed", model="shop")
    (line,) = log_lines()
    assert "ZeroDivisionError: by nothing" in line
    assert "\n" not in line
    assert "exc_info" not in line


def test_debug_lines_are_not_written_by_default(log_lines):
    structlog.get_logger().debug("model_dropped", model="user-1")
    assert log_lines() == []


def test_a_partition_that_was_handed_over_is_reported_with_its_mark(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    world.send(*events(20))
    run_until_idle(worker)
    with structlog.testing.capture_logs() as lines:
        worker.services.source.close()
    (line,) = [line for line in lines if line["event"] == "partition_revoked"]
    assert (line["partition"], line["mark"]) == (str(world.log.partitions[0]), 20)


def test_a_process_goes_on_whose_log_nobody_can_write(monkeypatch):
    # Its disk is full, its reader has ended, it was closed, or there never was one.
    failures = []

    class Full(io.StringIO):
        def write(self, text):
            failures.append("full")
            raise OSError(errno.ENOSPC, "No space left on device")

    class Unread(io.StringIO):
        def flush(self):
            failures.append("unread")
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    closed = io.StringIO()
    closed.close()
    before = structlog.get_config()
    try:
        for stream in (Full(), Unread(), closed, None):
            monkeypatch.setattr("sys.stderr", stream)
            configure_log()
            structlog.get_logger().error("store_lost", error="out of reach")
    finally:
        structlog.configure(**before)
    assert set(failures) == {"full", "unread"}
