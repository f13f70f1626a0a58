"""A worker whose wall clock is set forwards and backwards, by an hour or by a year, learns the same bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omdml import LOMDML
from omdml.streams.files.source import FileSink
from omdml.streams.stores.opening import open_store
from tests.fault.chaos.breaking.stepped import HOUR_S, LIBRARY, step
from tests.support.files.files import read_records
from tests.support.processes import Process, wait_for
from tests.support.worlds import catalogue, events, triplets

LIMIT_S = 120.0
LONG_S = 400 * 24 * HOUR_S
STEPS_S = (HOUR_S, -HOUR_S, LONG_S, -LONG_S, 0)
PART = 20
TEN_DAYS_S = 10 * 24 * HOUR_S


WITHHELD = """
[log]
kind = "file"
path = "{folder}/feedback"
letters = "{folder}/letters-{name}"
group = "{name}"
[store]
url = "dir:{folder}/{name}"
[catalogues.items]
path = "items"
[models.shop]
learner = "lomdml"
rank = 3
[guard]
hold_out = 8
"""


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
    worker = Process(
        tmp_path, "worker", "--config", str(path), name="worker", module="tests.fault.chaos.breaking.stepped"
    )

    def learns(part: int) -> None:
        for event in sent[PART * part : PART * (part + 1)]:
            sink.send(event, key="shop")
        sink.flush()
        expected = PART * (part + 1)
        wait_for(
            lambda: (saved := store.peek("shop")) and saved.version == expected, f"version {expected}", LIMIT_S, worker
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


@pytest.mark.deep
def test_a_withheld_version_stays_withheld_while_clocks_are_set(tmp_path):
    # Given a model whose newest version the guard withholds, because most clicks mean the contrary of earlier ones
    catalogue(tmp_path / "items")
    sink = FileSink(tmp_path / "feedback")
    stores = {name: open_store(f"dir:{tmp_path}/{name}") for name in ("stepped", "plain")}
    for name in stores:
        (tmp_path / f"{name}.toml").write_text(WITHHELD.format(folder=tmp_path, name=name))
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").write_text("5" * 64)
    store, sent = stores["stepped"], 0
    worker = Process(
        tmp_path, "worker", "--config", "stepped.toml", name="stepped", module="tests.fault.chaos.breaking.stepped"
    )

    def has_all(store) -> bool:
        *_, last = read_records(tmp_path / "feedback")
        checkpoint = store.peek("shop")
        return checkpoint is not None and checkpoint.next == last.offset + 1

    def learns(count: int, contrary: bool = False) -> int:
        """Send ``count`` events, wait until they are learned or held out, and return the version that is live."""
        nonlocal sent
        for number, event in enumerate(events(count, seed=sent)):
            click = json.loads(event)
            near, far = ("irrelevant", "relevant") if contrary and number % 5 < 3 else ("relevant", "irrelevant")
            sink.send(json.dumps({**click, "relevant": click[near], "irrelevant": click[far]}).encode(), key="shop")
        sink.flush()
        sent += count
        wait_for(lambda: has_all(store), f"{sent} events", LIMIT_S, worker)
        return store.current("shop").version

    try:
        learns(3000)
        live = learns(600, contrary=True)
        assert "snapshot_taken_back" in worker.said
        # What was taken back may have the number of the newest version. What comes then is withheld.
        assert learns(40, contrary=True) == live < store.peek("shop").version
        # When clocks are set, then nothing that is withheld goes live
        for ahead_s in (TEN_DAYS_S, -TEN_DAYS_S, 0):
            step(tmp_path, ahead_s)
            assert learns(40, contrary=True) == live
        step(tmp_path, -TEN_DAYS_S)
        # and once the clicks are right again, so is what is live.
        assert learns(3000) > live
        step(tmp_path, 0)
        learns(100)
        assert worker.stop(LIMIT_S) == 0, worker.said[-2000:]
    finally:
        sink.close()
        worker.close()
    # And the decisions are those of a worker whose clock is right.
    plain = Process(tmp_path, "worker", "--config", "plain.toml", name="plain")
    try:
        wait_for(lambda: has_all(stores["plain"]), "all events", LIMIT_S, plain)
        assert plain.stop(LIMIT_S) == 0, plain.said[-2000:]
    finally:
        plain.close()
    checkpoint, expected = (stores[name].peek("shop") for name in ("stepped", "plain"))
    assert (checkpoint.version, checkpoint.progress) == (expected.version, expected.progress)
    assert (checkpoint.state, checkpoint.reference) == (expected.state, expected.reference)
