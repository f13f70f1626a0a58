"""``omdml bootstrap``: a model begun from an archive, and a worker that goes on with it."""

from __future__ import annotations

import shlex

import numpy as np
import pytest
from click.testing import CliRunner

from omdml.errors import ConfigurationError, CorruptError, Fenced, FormatError, GapError, StartError, StoreError
from omdml.formats import STATE
from omdml.learners import DCA
from omdml.streams.placement import PlacementChanged
from omdml.streams.topic_extents import Extent
from omdml.workers.cli import main
from omdml.workers.operate.history.archived import find_records
from omdml.workers.operate.history.bootstrap import check_model, check_range
from omdml.workers.operate.history.engines import Dask, Processes, Spark, alone
from tests.formats.samples import HERE
from tests.support.deep import deep, examples
from tests.support.files.replays import LoggedShop
from tests.support.learning.histories import SPAN, History, sums_of, taken
from tests.support.pages.documents import block_that_begins, read
from tests.support.worlds import damage, events


@pytest.mark.parametrize("seed", range(examples(15)))
def test_an_archive_and_a_worker_take_what_a_worker_alone_takes(tmp_path, seed):
    # Given a log with repeats, copies, held-out and refused events, and an archive that ends anywhere
    history = History(tmp_path)
    history.tell(400, seed)
    end = int(np.random.default_rng(seed).integers(1, history.log.end(history.home)))
    alone, begun = history.empty_store(), history.empty_store()
    history.adopted(history.archived(end), begun)
    # If a worker goes on from there, and another one learns the same log alone
    history.tell(50, seed + 1000)
    both = history.worked(begun, "begun")
    letters = history.letters_about_the_model()
    history.empty_the_letters()
    whole = history.worked(alone, "alone")
    # I expect the same events learned, held out, refused and passed over, and the same sums to the byte
    assert taken(both) == taken(whole)
    assert sums_of(both) == sums_of(whole)
    assert letters == history.letters_about_the_model()
    assert min(whole.progress["tally"]["repeated"], whole.progress["hold_out"]["count"], len(letters)) > 0
    np.testing.assert_array_equal(*(DCA.from_bytes(entry.state)._engine.state.asked for entry in (both, whole)))


def same_bytes(history, engine, chunks):
    """Whether an engine makes the bytes that one process makes chunk by chunk."""
    archive = history.archived(430)
    alone, shared = history.summed(archive, chunks=1), history.summed(archive, engine, chunks=chunks)
    # Repeats that lie in an earlier chunk are seen only when the chunks are put together.
    assert alone.again == shared.again > 0
    assert (alone.chunks, alone.records) == (shared.chunks, shared.records) == (14, 430)
    assert [entry.record for entry in shared.model.refused] == [entry.record for entry in alone.model.refused]
    return shared.model.checkpoint("test").to_bytes() == alone.model.checkpoint("test").to_bytes()


def test_a_process_with_another_format_of_states_sums_up_nothing(tmp_path):
    history = History(tmp_path)
    history.tell(50)
    older = (HERE / "learner-state-4" / "dca-sums-of-items.safetensors").read_bytes()

    def of_an_older_driver(job, pieces):
        return alone(job._replace(start=older), pieces)

    with pytest.raises(
        FormatError, match=rf"began this job has another omdml \(format 4 .* this one has {STATE.number}\).*install"
    ):
        history.summed(history.archived(40), of_an_older_driver)


@deep
@pytest.mark.parametrize("chunks", [3, 50])
def test_however_spark_splits_the_work_the_bytes_are_the_same(history, spark, chunks):
    history.tell(500)
    assert same_bytes(history, Spark(spark), chunks)


@deep
@pytest.mark.parametrize("chunks", [3, 50])
def test_dask_makes_the_same_bytes_however_it_splits_the_work(history, dask_scheduler, chunks):
    history.tell(500)
    assert same_bytes(history, Dask(dask_scheduler), chunks)


@deep
def test_dask_begins_a_model_with_the_command_that_the_page_shows(tmp_path, dask_scheduler):
    shop = LoggedShop(tmp_path, {"shop": {"learner": "dca", "coordinates": "features"}})
    shop.tell(*events(60))
    page = block_that_begins(read("deploy/HISTORY.md"), "pip install 'omdml[dask]'").splitlines()[1]
    shown = page.replace("/shared/archive/", "archive").replace("tcp://host:8786", dask_scheduler)
    plain = "omdml bootstrap --input archive --model shop --engine local --processes 1 --replace"
    states = []
    for command in ("omdml archive --to archive", shown, plain):
        words = [str(tmp_path / word) if word == "archive" else word for word in shlex.split(command)[2:]]
        done = CliRunner().invoke(main, [command.split()[1], *words, "-c", str(shop.file)])
        assert done.exit_code == 0, done.output
        checkpoint = shop.store.peek("shop")
        states.append(checkpoint and checkpoint.state)
    assert states[0] is None
    assert states[1] == states[2]


def test_a_scheduler_that_is_no_address_is_a_clear_error(history):
    history.tell(60)
    with pytest.raises(ConfigurationError, match="no scheduler of Dask answers at tcp://nowhere"):
        history.summed(history.archived(60), Dask("tcp://nowhere"))


def test_processes_make_the_bytes_that_one_process_makes(history):
    history.tell(500)
    assert same_bytes(history, Processes(2), chunks=5)


def test_files_in_any_order_that_overlap_and_end_in_a_chunk_make_the_same_bytes(history):
    history.tell(300)
    whole = history.summed(history.archived(300, per_file=300))
    history.archived(201, "others", per_file=67)
    others = history.summed(history.archived(300, "others", per_file=23, begin=130))
    assert others.model.checkpoint("test").to_bytes() == whole.model.checkpoint("test").to_bytes()
    assert others.records == 300


def test_numbers_that_cannot_be_learned_are_dead_letters_as_with_a_worker(history):
    history.tell(60)
    huge = '{"new": {"corner": [1e30, 0, 0, 0, 0, 0]}}'
    for query, irrelevant in [("new", "i2"), ("i3", "new")] * 3:
        payload = f'"query":"{query}","relevant":"i1","irrelevant":"{irrelevant}","features":{huge}'
        history.log.send(f'{{"type":"triplet","model":"{history.name}",{payload}}}'.encode(), history.name)
    history.tell(40, seed=1)
    model = history.summed(history.archived(106)).model
    alone = history.empty_store()
    assert taken(history.worked(alone, "alone"))["tally"] == model.checkpoint("test").progress["tally"]
    letters = history.letters_about_the_model()
    assert sorted((entry.record.offset, entry.error.reason) for entry in model.refused) == letters
    # One or the other may be held out: then nothing is learned of it.
    assert len([offset for offset, reason in letters if reason == "diverged" and 60 <= offset < 66]) >= 3


def test_a_model_with_a_checkpoint_is_kept_unless_it_is_to_be_replaced(history):
    history.tell(200)
    archive, store = history.archived(120), history.empty_store()
    before = history.worked(store, "first")
    with pytest.raises(StoreError, match=r"has a checkpoint already, at version \d+: .* pass --replace"):
        history.adopted(archive, store)
    assert store.peek(history.name).to_bytes() == before.to_bytes()
    # If it is replaced, a worker goes back to where the archive ends, although it has read all of the log
    assert store.marks([history.home])[history.home] == 200
    model = history.adopted(archive, store, replace=True)
    assert store.peek(history.name).next == 120
    assert store.load(history.name)[1].version == model.learner.version
    again = history.worked(store, "second")
    assert (taken(again), sums_of(again)) == (taken(before), sums_of(before))


def test_a_worker_that_reads_on_before_the_checkpoint_is_replaced_reads_again(history, monkeypatch):
    # Given a worker that starts once the mark is back, and passes over what the checkpoint in the store has
    history.tell(200)
    archive, store = history.archived(120), history.empty_store()
    before = history.worked(store, "first")
    save = store.save

    def saved(*what, **how):
        monkeypatch.undo()
        history.worked(store, "first")
        assert store.marks([history.home])[history.home] == 200
        return save(*what, **how)

    monkeypatch.setattr(store, "save", saved)
    # If the checkpoint is replaced after that by one that lacks these events
    history.adopted(archive, store, replace=True)
    # I expect the next worker to learn them
    again = history.worked(store, "second")
    assert (taken(again), sums_of(again)) == (taken(before), sums_of(before))


def test_what_a_worker_passed_over_before_the_model_was_configured_is_learned(history):
    # Given a worker that has read everything, and knew other models only
    history.tell(200)
    configured = history.configuration
    history.configuration = type(configured)(
        **{name: getattr(configured, name) for name in configured.__struct_fields__}
        | {"models": {"another": next(iter(configured.models.values()))}}
    )
    store = history.empty_store()
    assert history.worked(store, "first") is None
    assert store.marks([history.home])[history.home] == 200
    # If the model begins from an archive that ends before that
    history.configuration = configured
    history.adopted(history.archived(90), store)
    both = history.worked(store, "first")
    # I expect what a worker alone makes of the whole log
    whole = history.worked(history.empty_store(), "alone")
    assert (taken(both), sums_of(both)) == (taken(whole), sums_of(whole))


def test_a_worker_that_takes_the_model_back_always_keeps_it(history, monkeypatch):
    history.tell(100)
    archive, store = history.archived(80), history.empty_store()
    save = store.save
    monkeypatch.setattr(store, "save", lambda *what, **how: (store.claim(history.name), save(*what, **how))[1])
    with pytest.raises(Fenced, match="a worker took it back 5 times"):
        history.adopted(archive, store)
    assert store.peek(history.name) is None


@pytest.mark.parametrize("replace", [True, False])
def test_a_model_that_a_worker_takes_back_twice_still_begins(history, monkeypatch, replace):
    history.tell(100)
    archive, store = history.archived(80), history.empty_store()
    replace_in_store, times = store.replace, iter(range(2))

    def replaced(*what):
        if next(times, None) is not None:
            store.claim(history.name)
        return replace_in_store(*what)

    monkeypatch.setattr(store, "replace", replaced)
    model = history.adopted(archive, store, replace=replace)
    assert store.peek(history.name).state == model.learner.to_bytes()
    assert store.current(history.name).version == model.learner.version


def test_a_worker_that_goes_on_from_the_archive_is_no_reason_to_try_again(history, monkeypatch):
    history.tell(100)
    archive, store = history.archived(80), history.empty_store()
    replace_in_store = store.replace
    monkeypatch.setattr(store, "replace", lambda *what: (replace_in_store(*what), store.claim(history.name))[0])
    model = history.adopted(archive, store)
    assert store.peek(history.name).version == model.learner.version


def killed_as_it_replaces(history, store, monkeypatch, done):
    """Have a bootstrap that replaces a model end before it has saved the checkpoint, or right after it."""
    replace_in_store, archive = store.replace, history.archived(80)

    def killed(*what):
        if done:
            replace_in_store(*what)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        history.adopted(archive, store, replace=True)
    monkeypatch.undo()


def test_a_model_that_cannot_be_read_waits_until_the_archive_is_saved(history, monkeypatch):
    history.tell(100)
    store = history.empty_store()
    assert history.worked(store, "first")
    history.store = store
    damage(history, history.name)
    killed_as_it_replaces(history, store, monkeypatch, done=False)
    with pytest.raises(CorruptError, match="none of the checkpoints"):
        store.claim(history.name)
    history.adopted(history.archived(80), store, replace=True)
    assert store.peek(history.name).next == 80


def test_a_model_that_was_replaced_goes_live_although_it_has_learned_less(history, monkeypatch):
    history.tell(100)
    store = history.empty_store()
    before = history.worked(store, "first").version
    killed_as_it_replaces(history, store, monkeypatch, done=True)
    replaced = store.peek(history.name).version
    assert store.current(history.name).version == replaced < before


def test_models_that_move_meanwhile_are_not_begun(history):
    history.tell(100)
    archive, store = history.archived(80), history.empty_store()
    assert store.place(history.log.topic_id, history.placement, history.placement.grown(6, {2: 100}))
    with pytest.raises(PlacementChanged):
        history.adopted(archive, store)
    assert store.peek(history.name) is None


def extent(history, begin=0, end=200):
    return Extent(history.home, begin, end, None)


@pytest.mark.parametrize(
    ("begin", "end", "log", "says"),
    [(20, 100, (0, 200), "begins at offset 20, but the log begins at 0"),
     (0, 100, (120, 200), "ends at offset 100, but the log begins at 120"),
     (0, 100, (0, 90), "reaches up to offset 100, but the log ends at 90")],
)  # fmt: skip
def test_an_archive_that_does_not_join_the_log_is_refused(history, begin, end, log, says):
    history.tell(200)
    result = find_records([history.archived(end, begin=begin)], 2, None)
    with pytest.raises(GapError, match=says):
        check_range(result, extent(history, *log), history.name, accept_gap=False)
    if "reaches" not in says:
        check_range(result, extent(history, *log), history.name, accept_gap=True)


def test_an_archive_that_reaches_further_back_than_the_log_joins_it(history):
    history.tell(200)
    check_range(
        find_records([history.archived(100)], 2, None), extent(history, 70, 200), history.name, accept_gap=False
    )


def test_an_archive_of_another_log_is_refused(history, tmp_path):
    history.tell(50)
    other = History(tmp_path / "other")
    other.tell(50)
    result = find_records([other.archived(50)], 2, None)
    with pytest.raises(GapError, match=f"is of log {other.log.topic_id}, and this one is {history.log.topic_id}"):
        check_range(result, extent(history), history.name, accept_gap=True)


@pytest.mark.parametrize("says_what_it_covers", [True, False])
def test_a_file_that_is_missing_in_the_middle_is_noticed(history, says_what_it_covers, monkeypatch):
    if not says_what_it_covers:
        monkeypatch.setattr("omdml.workers.operate.history.archive.COVERS", b"nothing that is known")
    history.tell(300)
    history.archived(100)
    archive = history.archived(300, begin=130)
    with pytest.raises(GapError, match=r"between the offsets (96|100) and (128|130)"):
        history.summed(archive)
    assert history.summed(archive, accept_gap=True).records == 270


@pytest.mark.parametrize(
    ("options", "says"),
    [({"learner": "lomdml", "init": "pca"}, "only the state of dca is a sum, but this learner is lomdml"),
     ({"memory": 500}, "with memory = 500 sums fade"), ({"parent": "star"}, "how much its parent"),
     ({"max_share_a_user": 0.2}, "max_share_a_user depends on the order")],
)  # fmt: skip
def test_a_model_whose_state_is_no_sum_is_refused(tmp_path, options, says):
    history = History(tmp_path, **options)
    with pytest.raises(StartError, match=f"{says}.*omdml replay"):
        check_model(history.name, history.spec, history.placement)


def test_a_model_that_moved_is_refused(history):
    moved = next(name for name in map("user-{}".format, range(99)) if history.placement.grown(6, {}).home(name) > 2)
    with pytest.raises(StartError, match="moved to another partition"):
        check_model(moved, history.spec, history.placement.grown(6, {0: 9}))


def test_an_archive_without_an_event_of_the_model_begins_nothing(history):
    history.log.send(b"broken", history.name)
    with pytest.raises(StartError, match="holds no event of model"):
        history.summed(history.archived(1))


def test_a_chunk_is_as_long_as_the_tests_say(history):
    history.tell(SPAN + 1)
    assert history.summed(history.archived(SPAN)).chunks == 1
    assert history.summed(history.archived(SPAN + 1, "longer")).chunks == 2
