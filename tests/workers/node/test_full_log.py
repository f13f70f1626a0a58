"""A feedback log in files whose disk is full holds each accepted event once, and no refused one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry

from omdml.errors import SourceError
from omdml.streams.files.source import FileSink
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.node.writing.inbox import Event, Inbox
from tests.fault.chaos.breaking.disks import SIZE_MB, small_disk
from tests.support.files.files import read_records

POSTS, EVENTS = 400, 25


def test_a_refused_post_leaves_nothing_in_a_log_whose_disk_is_full(tmp_path):
    with small_disk(tmp_path) as disk, ThreadPoolExecutor(32) as senders:
        (disk / "ballast").write_bytes(bytes((SIZE_MB - 2) << 20))
        inbox = Inbox(FileSink(disk / "feedback"), lambda event: None, NodeMetrics(CollectorRegistry()))
        inbox.start()

        def post(number: int) -> set[int]:
            numbers = range(number * EVENTS, (number + 1) * EVENTS)
            events = [Event(b'{"n":%d,"of":"%s"}' % (name, b"x" * 500), "shop") for name in numbers]
            try:
                inbox.put(events).result()
            except SourceError:
                return set()
            return set(numbers)

        accepted = set().union(*senders.map(post, range(POSTS)))
        assert 0 < len(accepted) < POSTS * EVENTS
        logged = [int(record.value.split(b",")[0].removeprefix(b'{"n":')) for record in read_records(disk / "feedback")]
        assert len(logged) == len(set(logged))
        assert set(logged) == accepted
        (disk / "ballast").unlink()
        assert post(POSTS)
        inbox.close()
