"""The demo as people run it: what it prints, and that it leaves nothing running and nothing behind."""

from __future__ import annotations

import os
import re
import signal
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from kafka.admin import KafkaAdminClient

from tests.support.processes import Process, wait_for

# This is enough if kernels must be compiled first.
SET_UP_S = 180.0
ROLES = {"valkey": "valkey-server", "worker": "omdml.workers.cli worker", "node": "omdml.workers.cli node"}
LAST_LINE = re.compile(
    r"mAP (0\.\d{3}) -> (0\.\d{3}) after ([\d,]+) comparisons; click-to-live p50 (\d+) ms, p99 (\d+) ms"
)


class Demo(Process):
    """A running ``omdml demo``, with what it printed so far."""

    def send(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def children(self) -> dict[str, int]:
        """Process id of each of its processes, by what it is, once all are started."""
        wait_for(lambda: "asking the node" in self.said, "worker and node to serve", SET_UP_S, self)
        pids = [pid for pid, (parent, _) in processes().items() if parent == self._child.pid]
        return {role: pid for pid in pids for role, said in ROLES.items() if said in command(pid)}

    def wait_until_people_click(self) -> None:
        """Return when some of their comparisons are live."""
        wait_for(lambda: re.search(r"version [1-9][\d,]* live", self.said), "clicks to be live", process=self)


def processes():
    """Parent and state of every process."""
    results = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The process may have ended.
            state, parent = path.read_text().rpartition(")")[2].split()[:2]
            results[int(path.parent.name)] = (int(parent), state)
    return results


def command(pid):
    """The command line of a process."""
    with suppress(OSError):
        # The process may have ended.
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def running(children):
    """Which of these processes still run; one that ended and that nobody asked about does not."""
    now = processes()
    return [role for role, pid in children.items() if pid in now and now[pid][1] != "Z"]


def has_written(folder, role):
    """Whether a process of the demo has written more than one line."""
    return any(path.read_bytes().count(b"\n") > 1 for path in folder.glob(f"omdml-demo-*/{role}.log"))


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """Start a demo with these arguments."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    started = []

    def start(*arguments):
        started.append(Demo(tmp_path, "demo", *arguments))
        return started[-1]

    yield start
    for process in started:
        process.close()


def last_words(process):
    """First mAP, last mAP and comparisons of its last line."""
    match = LAST_LINE.fullmatch(process.said.splitlines()[-1])
    assert match, process.said
    first, last, comparisons, p50, p99 = match.groups()
    assert 0 < int(p50) <= int(p99)
    return float(first), float(last), int(comparisons.replace(",", ""))


def test_answers_get_better_and_the_last_line_says_so(demo, tmp_path):
    folder = tmp_path / "kept"
    process = demo("--comparisons", "900", "--rate", "900", "--keep", str(folder))
    children = process.children()
    assert process.wait(SET_UP_S) == 0
    first, last, comparisons = last_words(process)
    assert comparisons == 900
    assert last > first + 0.1
    assert "answers until the demo ends; with omdml demo --console" in process.said
    course = re.fullmatch(r"mAP: (0\.\d{3}) after 20, (0\.\d{3}) after 50, .* after 300", process.said.splitlines()[-2])
    assert first < float(course[1]) < float(course[2]) < last
    configuration = tomllib.loads((folder / "omdml.toml").read_text())
    assert configuration["catalogues"]["digits"]["path"] == str(folder / "items")
    assert sum(path.read_bytes().count(b'"triplet"') for path in (folder / "feedback").glob("*.jsonl")) == 900
    assert not running(children)


# What people say to each learner is in tests/workers/demo, and what a node serves of it in tests/workers/learning.
def test_answers_get_better_with_a_learner_that_takes_no_triplets(demo):
    process = demo("--learner", "cpmtml", "--comparisons", "1500", "--rate", "900")
    assert process.wait(SET_UP_S) == 0
    assert "learner cpmtml: people say" in process.said
    first, last, comparisons = last_words(process)
    assert comparisons == 1500
    assert last > first + 0.1


def test_ctrl_c_ends_everything(demo, tmp_path):
    process = demo()
    children = process.children()
    process.wait_until_people_click()
    assert sorted(running(children)) == ["node", "valkey", "worker"]
    process.send(signal.SIGINT)
    assert process.wait() == 130
    assert process.said.splitlines()[-1] == "stopped; nothing that the demo started runs any more"
    assert not running(children)
    assert not list(tmp_path.glob("omdml-demo-*"))


def test_a_sigterm_during_set_up_ends_everything(demo, tmp_path):
    process = demo()
    wait_for(lambda: "starting a worker" in process.said, "the first process", SET_UP_S, process)
    process.send(signal.SIGTERM)
    assert process.wait() == 143
    assert not [pid for pid in processes() if str(tmp_path) in command(pid)]
    assert not list(tmp_path.glob("omdml-demo-*"))


def test_a_demo_that_is_killed_takes_its_processes_along(demo):
    process = demo()
    children = process.children()
    process.kill()
    wait_for(lambda: not running(children), "its processes to end")
    assert not running(children)


@pytest.mark.parametrize("role", ["worker", "valkey"])
def test_a_process_that_dies_ends_the_demo_and_is_quoted(demo, tmp_path, role):
    process = demo()
    children = process.children()
    # The node answers without the worker, which may have written nothing by then.
    wait_for(lambda: has_written(tmp_path, role), "lines that can be quoted", SET_UP_S, process)
    os.kill(children[role], signal.SIGKILL)
    assert process.wait() == 1
    lines, heading = process.said.splitlines(), f"omdml: {role} ended with exit code -9; its last lines:"
    assert heading in lines, process.said
    quoted = lines[lines.index(heading) + 1 :]
    # As it wrote them: line by line.
    assert len(quoted) > 1
    assert all(line.startswith("  ") for line in quoted)
    assert "\\n" not in process.said
    assert not running(children)


def test_a_server_out_of_reach_is_named(demo):
    process = demo("--redis", "redis://127.0.0.1:1")
    assert process.wait(SET_UP_S) == 1
    assert process.said.splitlines()[-1].startswith("omdml: store redis://127.0.0.1:1: ")


def test_real_servers_are_used_and_left_as_they_were(demo, kafka, redis_server):
    process = demo("--comparisons", "600", "--rate", "900", "--kafka", kafka.servers, "--redis", redis_server.url)
    children = process.children()
    assert sorted(children) == ["node", "worker"]
    assert process.wait(SET_UP_S) == 0
    first, last, _ = last_words(process)
    assert last > first + 0.1
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    assert not [topic for topic in admin.list_topics() if topic.startswith("omdml-demo")]
    admin.close()
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.keys() == []
    assert not running(children)
