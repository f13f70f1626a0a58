"""Lines of a process's own log: a traceback where there is one, and no word about it where there is none."""

from __future__ import annotations

import pytest
import structlog

from workers.lifecycle import configure_log


@pytest.fixture
def logger(capsys):
    """A logger as processes have it; what it says is on the captured standard error."""
    before = structlog.get_config()
    configure_log()
    yield structlog.get_logger("omdml")
    structlog.configure(**before)


def test_an_error_without_a_traceback_says_nothing_of_one(logger, capsys):
    logger.error("store_lost", error="out of reach", exc_info=False)
    assert "store_lost" in (line := capsys.readouterr().err)
    assert "exc_info" not in line


def test_a_failure_nobody_foresaw_brings_its_traceback_in_one_line(logger, capsys):
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        logger.exception("refresh_failed", model="shop")
    (line,) = capsys.readouterr().err.splitlines()
    assert "ZeroDivisionError: by nothing" in line
    assert "exc_info" not in line
