"""``omdml replay --publish``: a worker goes on where the replay ended, and nothing of anybody else is touched."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from omdml.errors import CorruptError, Fenced, StoreError
from omdml.learners import Learner
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.files.ungrouped import UngroupedFileSource
from omdml.streams.letters import read_letters
from omdml.streams.placement import PlacementChanged
from omdml.workers.operate import published_replay
from omdml.workers.operate.replay import read_whole
from tests.support.files.replays import ALONE, LoggedShop, replayed
from tests.support.processes import flowing
from tests.support.worlds import events, run_until_idle, triplets


@pytest.mark.parametrize("options", [["--publish"], ["--publish", "--fit"]])
def test_a_worker_goes_on_where_a_published_replay_ended_to_the_byte(shop, options):
    # Given a replay that began the model in the store
    shop.tell(*events(100), *events(20, model="user-1"))
    printed = shop.omdml(*options, "--save", str(shop.folder / "state.bin"))
    assert printed.exit_code == 0, printed.output
    saved = (shop.folder / "state.bin").read_bytes()
    _, snapshot = shop.store.load("shop")
    twin = Learner.from_bytes(saved)
    assert snapshot.version == twin.version == (50 if "--fit" in options else 100)
    # If a worker starts then, and feedback goes on
    shop.tell(*events(30, seed=9))
    checkpoint = shop.worked()
    # I expect the bytes of one run without any worker, and the other model learned from the log's beginning
    twin.learn_many(triplets(30, seed=9), shop.catalogue.features)
    assert checkpoint.state == twin.to_bytes()
    assert shop.store.load("shop")[1].version == twin.version
    assert shop.store.load("user-1")[1].version == 20


def test_a_running_worker_that_waits_for_its_first_event_goes_on_from_there(shop):
    worker = shop.worker(source=FileSource(shop.folder / "feedback"))
    run_until_idle(worker, turns=3)
    assert shop.store.load("shop")[1].version == 0
    sink = FileSink(shop.folder / "feedback", fsync=False)
    for event in events(40):
        sink.send(event, "shop")
    model = replayed(shop)
    published_replay.publish(model, shop.store, worker.services.letters, "test")
    shop.tell(*events(10, seed=1))
    run_until_idle(worker)
    model.learner.learn_many(triplets(10, seed=1), shop.catalogue.features)
    assert shop.store.claim("shop").checkpoint.state == model.learner.to_bytes()


def test_a_model_that_exists_is_not_begun_again_unless_it_may_be_deleted(shop):
    shop.tell(*events(60))
    before = shop.worked()
    refused = shop.omdml("--publish")
    assert refused.exit_code == 1
    assert "is in the store already, at version 60" in refused.output
    assert "--replace" in refused.output
    assert shop.store.claim("shop").checkpoint.state == before.state
    replaced = shop.omdml("--publish", "--replace", "--fit")
    assert replaced.exit_code == 0
    # An operator sees that the model has learned less than before.
    assert "shop: version 30 is live (before: version 60)" in flowing(replaced.output)
    assert shop.store.claim("shop").checkpoint.version == 30


def lose(shop, loss):
    """Damage or delete all checkpoints of the model."""
    for path in (shop.folder / "state" / "models" / "shop").rglob("*.checkpoint"):
        path.write_bytes(b"?") if loss == "damaged" else path.unlink()


def killed(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("loss", ["damaged", "gone"])
def test_a_model_whose_checkpoints_are_lost_waits_until_a_replay_is_saved(shop, monkeypatch, loss):
    shop.tell(*events(30))
    shop.worked()
    lose(shop, loss)
    # If the replay is killed just before that, I expect that no worker begins the model with later events
    monkeypatch.setattr(shop.store, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        published_replay.publish(replayed(shop), shop.store, letters_of(shop), "test", replace=True)
    with pytest.raises(CorruptError, match="omdml replay --model shop --publish --replace"):
        shop.store.claim("shop")


@pytest.mark.parametrize("loss", ["damaged", "gone"])
def test_a_model_whose_checkpoints_are_lost_is_learned_again_as_the_error_says(shop, loss):
    shop.tell(*events(30), *events(5, model="user-1"))
    before = shop.worked()
    lose(shop, loss)
    with pytest.raises(CorruptError, match="omdml replay --model shop --publish --replace"):
        shop.store.claim("shop")
    printed = shop.omdml("--publish", "--replace")
    assert printed.exit_code == 0, printed.output
    assert shop.store.claim("shop").checkpoint.state == before.state
    # If feedback goes on, I expect the bytes of one run
    shop.tell(*events(10, seed=9))
    twin = Learner.from_bytes(before.state)
    twin.learn_many(triplets(10, seed=9), shop.catalogue.features)
    assert shop.worked().state == twin.to_bytes()


def test_a_worker_that_was_first_keeps_its_model(shop):
    shop.tell(*events(10))
    model = replayed(shop)
    shop.worked()
    with pytest.raises(StoreError, match="at version 10"):
        published_replay.publish(model, shop.store, None, "test")


def test_a_worker_that_claims_in_between_fences_the_replay(shop, monkeypatch):
    shop.tell(*events(10))
    model = replayed(shop)
    save = shop.store.save
    monkeypatch.setattr(
        shop.store, "save", lambda *written, **how: (shop.store.claim("shop"), save(*written, **how))[1]
    )
    with pytest.raises(Fenced, match="a worker took it back 5 times"):
        published_replay.publish(model, shop.store, letters_of(shop), "test")
    assert shop.store.current("shop") is None


@pytest.mark.parametrize("step", ["publish", "replace"])
def test_a_model_that_a_busy_worker_takes_back_twice_is_still_replaced(shop, monkeypatch, step):
    shop.tell(*events(10))
    shop.worked()
    model, write, times = replayed(shop), getattr(shop.store, step), iter(range(2))

    def written(*what):
        if next(times, None) is not None:
            shop.store.claim("shop")
        return write(*what)

    monkeypatch.setattr(shop.store, step, written)
    published_replay.publish(model, shop.store, letters_of(shop), "test", replace=True)
    assert shop.store.peek("shop").state == model.learner.to_bytes()
    assert shop.store.current("shop").version == model.learner.version


@pytest.mark.parametrize("replace", [True, False])
def test_a_worker_that_goes_on_with_what_was_replayed_is_no_reason_to_try_again(shop, monkeypatch, replace):
    shop.tell(*events(10))
    model, replace_in_store = replayed(shop), shop.store.replace
    monkeypatch.setattr(shop.store, "replace", lambda *what: (replace_in_store(*what), shop.store.claim("shop"))[0])
    with pytest.raises(Fenced, match="was replaced, and a worker has gone on") if replace else nullcontext():
        published_replay.publish(model, shop.store, letters_of(shop), "test", replace=replace)
    assert shop.store.peek("shop").version == model.learner.version


@pytest.mark.parametrize("running", [True, False])
def test_what_a_worker_learned_while_the_log_was_replayed_is_learned_again(shop, running):
    shop.tell(*events(100), *events(20, model="user-1"))
    shop.worked()
    model = replayed(shop)
    # If feedback goes on while the log is read, and a worker learns and saves it
    shop.tell(*events(30, seed=9))
    worker = shop.worker(source=FileSource(shop.folder / "feedback"))
    run_until_idle(worker)
    if not running:
        worker.stop()
        worker.run()
    published_replay.publish(model, shop.store, letters_of(shop), "test", replace=True)
    shop.tell(*events(10, seed=4))
    if running:
        run_until_idle(worker)
        worker.stop()
        worker.run()
    # I expect that the model has learned each event once, and the other one too
    for count, seed in ((30, 9), (10, 4)):
        model.learner.learn_many(triplets(count, seed=seed), shop.catalogue.features)
    assert shop.worked().state == model.learner.to_bytes()
    assert shop.store.peek("user-1").version == 20


def test_a_worker_that_reads_on_before_the_replay_is_saved_reads_again(shop, monkeypatch):
    # Given a replay that lacks what a worker learned meanwhile
    shop.tell(*events(100))
    model = replayed(shop)
    shop.tell(*events(30, seed=9))
    shop.worked()
    save = shop.store.save

    def saved(*what, **how):
        monkeypatch.undo()
        worker = shop.worker(source=FileSource(shop.folder / "feedback"))
        run_until_idle(worker)
        worker.stop()
        worker.run()
        return save(*what, **how)

    # If a worker starts once the mark is back, and passes over what the checkpoint in the store has
    monkeypatch.setattr(shop.store, "save", saved)
    published_replay.publish(model, shop.store, letters_of(shop), "test", replace=True)
    # I expect that the next one learns it
    model.learner.learn_many(triplets(30, seed=9), shop.catalogue.features)
    assert shop.worked().state == model.learner.to_bytes()


def test_a_worker_that_has_saved_and_not_moved_its_mark_reads_again(shop, monkeypatch):
    # Given a replay that lacks what a worker has just saved, while the mark is still where the replay ends
    shop.tell(*events(100))
    shop.worked()
    model = replayed(shop)
    assert shop.store.move_mark(model.home, shop.store.marks([model.home])[model.home], model.next)
    shop.tell(*events(30, seed=9))
    worker = shop.worker(source=FileSource(shop.folder / "feedback"))
    move_mark = shop.store.move_mark

    def moved(*what):
        monkeypatch.undo()
        published_replay.publish(model, shop.store, letters_of(shop), "test", replace=True)
        return move_mark(*what)

    # If it is published just before the worker moves the mark
    monkeypatch.setattr(shop.store, "move_mark", moved)
    run_until_idle(worker)
    worker.stop()
    worker.run()
    # I expect that these events are learned again
    model.learner.learn_many(triplets(30, seed=9), shop.catalogue.features)
    assert shop.worked().state == model.learner.to_bytes()


@pytest.mark.parametrize("before_the_claim", [True, False])
def test_a_replay_that_is_published_while_models_move_begins_nothing(shop, monkeypatch, before_the_claim):
    shop.tell(*events(10))
    topic_id = FileSource(shop.folder / "feedback").topic_id
    after = ALONE.grown(2, {0: 10})
    assert shop.store.place(topic_id, None, ALONE)
    model, claim = replayed(shop), shop.store.claim
    if before_the_claim:
        shop.worked()
        assert shop.store.place(topic_id, ALONE, after)
    else:
        monkeypatch.setattr(
            shop.store, "claim", lambda name: (claim(name), shop.store.place(topic_id, ALONE, after))[0]
        )
    with pytest.raises(PlacementChanged, match="start it again"):
        published_replay.publish(model, shop.store, letters_of(shop), "test", replace=True)
    # What was to be replaced is still there if models had moved before anything was done.
    assert (shop.store.current("shop") is not None) == before_the_claim
    assert (shop.store.peek("shop") is not None) == before_the_claim


def test_a_replay_that_cannot_be_published_closes_the_dead_letters(shop, monkeypatch):
    shop.tell(*events(10))
    letters = letters_of(shop)
    monkeypatch.setattr("omdml.workers.commands.replay_output.open_letters", lambda log: letters)
    closed = []
    monkeypatch.setattr(letters, "close", lambda: closed.append(True))
    monkeypatch.setattr(published_replay, "publish", refuse)
    assert shop.omdml("--publish").exit_code == 1
    assert closed == [True]


def refuse(*_):
    raise StoreError("store: away")


def letters_of(shop):
    return shop.worker().services.letters


def test_what_a_published_replay_refused_is_in_the_dead_letters(shop):
    shop.tell(*events(10), b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"zebra"}')
    assert shop.omdml("--publish").exit_code == 0
    source = UngroupedFileSource(shop.folder / "letters")
    letters = read_letters(record for records in read_whole(source) for record in records)
    assert [letter.reason for letter in letters] == ["unknown_item"]


def test_a_log_without_an_event_of_the_model_begins_nothing(shop):
    shop.tell(*events(10, model="user-1"))
    refused = shop.omdml("--publish")
    assert (refused.exit_code, "nothing to begin with" in refused.output) == (1, True)
    assert shop.store.models() == []


def test_nothing_is_deleted_if_there_is_nothing_to_begin_with(shop):
    shop.tell(*events(10))
    shop.worked()
    other = LoggedShop(shop.folder / "other")
    other.tell(*events(10, model="user-1"))
    empty = replayed(other)
    with pytest.raises(StoreError, match="nothing to begin with"):
        published_replay.publish(empty, shop.store, None, "test", replace=True)
    assert shop.store.current("shop").version == 10


def test_a_published_replay_has_no_event_time_that_counts_as_freshness(shop):
    shop.tell(*events(10))
    assert shop.omdml("--publish").exit_code == 0
    assert shop.store.load("shop")[1].oldest_event_time is None
