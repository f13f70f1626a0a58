"""A worker whose wall clock is set forwards and backwards, by an hour or by a year, learns the same bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from omdml import LOMDML
from omdml.streams.files.source import FileSink
from omdml.streams.stores.opening import open_store
from tests.fault.chaos.stepped import HOUR_S, LIBRARY, step
from tests.support.processes import Process, wait_for
from tests.support.worlds import catalogue, events, triplets

LIMIT_S = 120.0
LONG_S = 400 * 24 * HOUR_S
STEPS_S = (HOUR_S, -HOUR_S, LONG_S, -LONG_S, 0)
PART = 20


@pytest.mark.deep
def test_clocks_that_are_set_change_nothing_that_is_learned(tmp_path):
    # Given a worker whose wall clock is the test's
    items, sink = catalogue(tmp_path / "items"), FileSink(tmp_path / "feedback")
    path, store = tmp_path / "omdml.toml", open_store(f"dir:{tmp_path}/state")
    path.write_text(
        f'[log]\nkind = "file"\npath = "{tmp_path}/feedback"\nletters = "{tmp_path}/letters"\n[store]\n'
        f'url = "dir:{tmp_path}/state"\n[catalogues.items]\npath = "items"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 3\n'
        "[guard]\non = false\n"
    )
    sent = list(events(PART * (1 + len(STEPS_S))))
    worker = Process(tmp_path, "worker", "--config", str(path), name="worker", module="tests.fault.chaos.stepped")

    def learns(part: int) -> None:
        for event in sent[PART * part : PART * (part + 1)]:
            sink.send(event, key="shop")
        sink.flush()
        expected = PART * (part + 1)
        wait_for(
            lambda: (kept := store.peek("shop")) and kept.version == expected, f"version {expected}", LIMIT_S, worker
        )

    try:
        learns(0)
        assert LIBRARY in Path(f"/proc/{worker.pid}/maps").read_text()
        # When its clock jumps, again and again, then what comes is learned
        for part, ahead_s in enumerate(STEPS_S, start=1):
            step(tmp_path, ahead_s)
            learns(part)
        assert worker.stop(LIMIT_S) == 0, worker.said[-2000:]
    finally:
        sink.close()
        worker.close()
    # And its bytes are those of a learner that has no clock.
    twin = LOMDML(dims=dict(items.dims), rank=3)
    twin.learn_many(triplets(len(sent)), items.features)
    assert store.peek("shop").state == twin.to_bytes()
    published = [move["at"] for move in store.history("shop") if move["what"] == "published"]
    assert max(published) - min(published) > LONG_S
