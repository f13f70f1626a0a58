"""Every line of the log is counted, and every event that the code can say is known before it is said."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import structlog

from omdml.workers.configuration.process import configure_log
from omdml.workers.telemetry.log_events import KNOWN, count
from omdml.workers.telemetry.registry import new_registry

ROOT = Path(__file__).resolve().parents[3]
# Commands that end by themselves: nobody scrapes them, but somebody reads what they say.
COMMANDS = (
    "streams/catalogues/building/build.py",
    "streams/catalogues/redis/upload.py",
    "streams/catalogues/building/destinations.py",
)
COMMANDS += ("streams/catalogues/tables/",)
LEVELS = {"info": "info", "warning": "warning", "error": "error", "exception": "error"}
REWINDS = {("error", name) for name in ("checkpoint_damaged_previous_used", "model_goes_on", "model_deleted")}
# By module, the events whose names are computed.
COMPUTED = {
    "workers/node/following/went_live.py": {
        ("info", name) for name in ("model_live", "new_version", "rolled_back", "pinned")
    }
    | {("info", "unpinned")},
    "workers/node/http/connection_limits.py": {("warning", "connection_refused")},
    "workers/learning/worker.py": REWINDS,
    "workers/learning/schedule.py": REWINDS,
}


def aliases(tree):
    """Methods of a logger that are used in another way than by a call, as in ``tell = log.info``."""
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "log"
        if node.attr in LEVELS and node not in called
    ]


def logged_calls(commands=False):
    """(level, event) of every call of a logger in a module that a process loads, or a command that ends by itself."""
    for layer in ("streams", "workers"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            name = str(path.relative_to(ROOT))
            text = path.read_text()
            if name.startswith(COMMANDS) != commands or "log." not in text:
                continue
            tree = ast.parse(text)
            assert not aliases(tree), f"{name}: call log.info and the like by these names, or this test misses the line"
            for node in ast.walk(tree):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                    continue
                logger = node.func.value
                if isinstance(logger, ast.Name) and logger.id == "log" and node.func.attr in LEVELS:
                    event = node.args[0]
                    if isinstance(event, ast.Constant):
                        yield LEVELS[node.func.attr], event.value
                    else:
                        assert name in COMPUTED, f"{name}:{node.lineno}: name what it can say in COMPUTED"
                        yield from COMPUTED[name]


def test_the_events_that_are_counted_are_those_that_the_code_says():
    assert set(logged_calls()) == KNOWN


def test_the_operations_page_lists_all_warnings_and_errors_and_no_others():
    page = (ROOT / "deploy/OPERATIONS.md").read_text().partition("### Lines that need you\n")[2].partition("\n### ")[0]
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    matches = re.findall(r"`(\w+)`", " ".join(cells))
    calls = KNOWN | set(logged_calls(commands=True))
    assert sorted(matches) == sorted({event for level, event in calls if level != "info"})


def test_a_line_is_counted_by_level_and_event_and_an_unknown_one_as_other():
    def value(event):
        return registry.get_sample_value("omdml_log_events_total", {"level": "warning", "event": event})

    registry = new_registry()
    before = value("drift"), value("other")
    count(None, "", {"level": "warning", "event": "drift"})
    count(None, "", {"level": "warning", "event": "nobody planned this"})
    assert (value("drift"), value("other")) == (before[0] + 1, before[1] + 1)


def test_the_log_that_processes_write_is_counted():
    registry, before = new_registry(), structlog.get_config()
    labels = {"level": "info", "event": "worker_started"}
    first = registry.get_sample_value("omdml_log_events_total", labels)
    configure_log()
    try:
        structlog.get_logger().info("worker_started")
    finally:
        structlog.configure(**before)
    assert registry.get_sample_value("omdml_log_events_total", labels) == first + 1
