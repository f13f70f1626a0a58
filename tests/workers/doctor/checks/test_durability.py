"""Doctor's checks of what the log may lose and the store may forget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from omdml.streams.files.source import FileSink
from omdml.streams.kafka.safety import TopicSafety
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.redis.safety import ServerSafety
from omdml.workers.configuration.config import FileLog
from omdml.workers.doctor.checks import durability
from omdml.workers.doctor.checks.durability import (
    FEEDBACK,
    LETTERS,
    ROUTED,
    forgotten_routers,
    of_log,
    of_store,
    safe_server,
    unsafe_server,
    unsafe_topic,
)
from omdml.workers.doctor.findings import Level
from tests.fault.chaos.breaking.disks import SIZE_MB, read_only, small_disk
from tests.support.processes import ROOT

TOPIC = TopicSafety(
    replicas=3,
    min_insync=2,
    unclean_election=False,
    cleanup_policy="delete",
    retention_s=None,
    retention_bytes=None,
)
SERVER = ServerSafety(
    append_only=True, fsync="everysec", save="", policy="noeviction", is_replica=False, replicas=0, min_replicas=0
)
DAY_S = 86_400.0


def test_safe_settings_have_no_warnings():
    assert list(unsafe_topic("feedback", TOPIC, FEEDBACK, "kafka:9092")) == []
    assert list(unsafe_topic("feedback", TOPIC._replace(retention_s=7 * DAY_S), FEEDBACK, "kafka:9092")) == []
    assert list(unsafe_server(SERVER)) == []
    assert list(unsafe_server(SERVER._replace(replicas=1, min_replicas=1))) == []


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"replicas": 1, "min_insync": 1}, ("one copy", "lost with their broker", "Give it three")),
        ({"min_insync": 1}, ("3 copies", "as soon as one broker has it", "min.insync.replicas=2")),
        ({"replicas": 2, "min_insync": 2}, ("refused as soon as one broker is down", "min.insync.replicas=1")),
        ({"unclean_election": True}, ("--accept-gap", "unclean.leader.election.enable=false")),
        ({"cleanup_policy": "compact,delete"}, ("cleanup.policy=compact,delete", "cleanup.policy=delete")),
        ({"retention_s": 36 * 3600.0}, ("after 1.5 days", "expected 7 days or more", "retention.ms=-1")),
        ({"retention_bytes": 1 << 30}, ("1,073,741,824 bytes", "retention.bytes=-1")),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_an_unsafe_topic_is_a_warning_that_says_what_to_do(setting, expected):
    (text,) = unsafe_topic("feedback", TOPIC._replace(**setting), FEEDBACK, "one:9092,two:9092")
    assert "topic 'feedback'" in text
    # A command in the sentence can be copied and run.
    assert text.count("kafka-configs.sh") == text.count("kafka-configs.sh --bootstrap-server one:9092,two:9092 --alter")
    for words in expected:
        assert words in text


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"append_only": False}, ("no save points", "forget every model", "topics rewind", "appendonly yes")),
        ({"append_only": False, "save": "3600 1 60 1000"}, ("up to 1 hour", "learn again", "appendonly yes")),
        ({"append_only": False, "save": None}, ("this user may not ask", "appendonly yes")),
        ({"fsync": "no"}, ("its machine goes down", "appendfsync everysec")),
        ({"policy": "allkeys-lru"}, ("drops what was learned", "noeviction")),
        ({"replicas": 2}, ("2 replicas and waits for none", "lacks the newest writes", "min-replicas-max-lag 10")),
        ({"is_replica": True}, ("workers cannot write", "Name the primary")),
    ],
    ids=lambda value: ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else "",
)
def test_an_unsafe_server_is_a_warning_that_says_what_to_do(setting, expected):
    (text,) = unsafe_server(SERVER._replace(**setting))
    for words in expected:
        assert words in text


def test_the_sentence_about_retention_names_the_time_that_is_compared(monkeypatch):
    monkeypatch.setattr(durability, "SAFE_RETENTION_S", 3 * DAY_S)
    (text,) = unsafe_topic("feedback", TOPIC._replace(retention_s=DAY_S), FEEDBACK, "kafka:9092")
    assert "after 1 day, expected 3 days or more" in text


def test_a_topic_is_reported_by_what_it_is_for():
    unclean = TOPIC._replace(unclean_election=True, retention_s=DAY_S)
    lost, deleted = unsafe_topic("feedback.letters", unclean, LETTERS, "kafka:9092")
    assert "with the events that they hold" in lost
    assert "deletes dead letters after 1 day" in deleted
    assert "neither explained nor sent again" in deleted
    lost, deleted = unsafe_topic("clicks", unclean, ROUTED, "kafka:9092")
    assert "routers stop until they are started with --accept-gap" in lost
    assert "before they are routed" in deleted


@pytest.mark.parametrize(("retention_s", "held"), [(None, "for ever"), (8 * DAY_S, "for 8 days")])
def test_routers_that_kafka_may_forget_before_their_topic_are_a_warning(retention_s, held):
    (text,) = forgotten_routers("clicks", TOPIC._replace(retention_s=retention_s), 7 * DAY_S)
    assert f"topic 'clicks' keeps events {held}" in text
    assert "7 days after the last router ended" in text
    assert "offsets.retention.minutes" in text


def test_routers_that_kafka_remembers_for_as_long_as_their_topic_are_safe():
    assert list(forgotten_routers("clicks", TOPIC._replace(retention_s=7 * DAY_S), 7 * DAY_S)) == []
    assert list(forgotten_routers("clicks", TOPIC, None)) == []


def test_what_a_safe_server_may_still_lose_is_reported():
    assert "the last second is lost" in safe_server(SERVER)
    assert "before it is acknowledged" in safe_server(SERVER._replace(fsync="always"))
    assert "may not ask" in safe_server(SERVER._replace(fsync=None))


@pytest.mark.parametrize("url", ["postgres://learned", "memory:"])
def test_what_an_unknown_store_may_lose_is_not_checked(url):
    assert of_store(url, None) == f"what {url} may lose is not checked"


def test_files_are_as_safe_as_their_disk(tmp_path):
    assert "as safe as its disk" in of_log(FileLog(path=str(tmp_path)))
    assert "as safe as its disk" in of_store(f"dir:{tmp_path}", None)


def test_a_disk_without_room_is_an_error_for_the_store_the_log_and_the_letters(tmp_path):
    with small_disk(tmp_path) as disk:
        log = FileLog(path=str(disk / "feedback"), letters=str(disk / "letters"))
        assert isinstance(of_log(log), str)
        assert isinstance(of_store(f"dir:{disk}", None), str)
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as file:
            for _ in range(SIZE_MB << 10):
                file.write(bytes(1024))
        remarks = [*of_store(f"dir:{disk}", None), *of_log(log)]
    assert [remark.level for remark in remarks] == [Level.ERROR] * 3
    for remark, what in zip(remarks, (f"dir:{disk}", "feedback log", "dead letters"), strict=True):
        assert remark.text.startswith(what)
        assert "its disk has room for 0 bytes more" in remark.text


def test_a_store_that_became_read_only_is_a_warning(tmp_path):
    with small_disk(tmp_path, "ro") as disk:
        (remark,) = of_store(f"dir:{disk}", None)
    assert "cannot be written by this user" in remark.text


def test_doctor_names_each_part_of_a_service_that_is_read_only(tmp_path):
    FileSink(tmp_path / "feedback").close()
    FileSink(tmp_path / "letters").close()
    DirectoryStore(tmp_path / "state").secret()
    (tmp_path / "omdml.toml").write_text(
        '[log]\npath = "feedback"\nletters = "letters"\n[store]\nurl = "dir:state"\n[node]\nbind = "127.0.0.1:1"\n'
    )
    disks = [word for part in ("feedback", "letters", "state") for word in read_only(tmp_path / part)]
    command = [*disks, sys.executable, "-m", "omdml.workers.cli", "doctor", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=300, check=False)
    assert run.returncode == 1
    findings = [(finding["level"], finding["text"]) for finding in json.loads(run.stdout)["findings"]]
    log, *others = sorted((level, text) for level, text in findings if "cannot be written" in text)
    assert log[0] == "error"
    assert log[1].startswith("feedback log feedback: feedback cannot be written by this user. A node of this user")
    assert "give it the right to write. If the file system is read-only" in log[1]
    for (level, text), part in zip(others, ("letters", "state"), strict=True):
        assert level == "warning"
        assert text.startswith(f"{part} cannot be written by this user. A node of this user does not need to")


@pytest.mark.parametrize(
    ("used", "level", "expected"),
    [(950, Level.WARNING, "Once it is full it refuses writes"), (1000, Level.ERROR, "It is full and refuses writes")],
)
def test_a_full_server_is_reported_before_and_while_it_refuses_writes(used, level, expected):
    ((actual_level, text),) = of_store("redis://cache", SERVER._replace(used_bytes=used * 10**6, max_bytes=10**9))
    assert actual_level is level
    assert text.startswith(f"it uses {used:,}.0 MB of memory, and maxmemory is 1,000.0 MB. ")
    assert expected in text
    assert "CONFIG SET maxmemory" in text


@pytest.mark.parametrize("max_bytes", [0, 10**9])
def test_a_server_with_room_is_well(max_bytes):
    assert isinstance(of_store("redis://cache", SERVER._replace(used_bytes=890 * 10**6, max_bytes=max_bytes)), str)
