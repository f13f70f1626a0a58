"""Replays: a log learned again beside the worker's group, fitted starts, and models that begin in a store."""

from __future__ import annotations

import json
import re
import uuid

import numpy as np
import pytest
from click.testing import CliRunner

from omdml import LOMDML, Qwise
from omdml.batch import batch_start
from omdml.engines.base import near_and_far
from omdml.errors import CorruptError, Fenced, SourceError, StartError, StoreError
from omdml.feedback import encode
from omdml.learners import Learner
from streams.files.source import FileSink, FileSource
from streams.files.ungrouped import FileBystander
from streams.letters import read_letters
from streams.memory import MemorySource
from streams.partitioners import by_crc32
from streams.placement import Placement, PlacementChanged
from streams.stores.folder.store import DirectoryStore
from tests.support.worlds import (
    TASKS,
    World,
    events,
    feedback,
    living_on,
    other_than,
    rehomed,
    run_until_idle,
    triplets,
)
from workers.cli import main
from workers.commands import replay_output
from workers.configuration.config import GuardConfig
from workers.configuration.specs import Specs
from workers.operate import fit
from workers.operate.replay import ReplayedModel, prequential_table, read_as_placed, read_whole, replayed_spec

ALONE = Placement.first("murmur2", 1)

TORN = b'{"type":"triplet","model":"shop"'


class Shop(World):
    """One model on real files, and a configuration file for commands."""

    def __init__(self, folder, models=None, guard="false") -> None:
        models = models or {"shop": {"learner": "qwise"}, "user-*": {"learner": "lomdml", "rank": 2}}
        super().__init__(folder, models=models)
        self.folder, self.store = folder, DirectoryStore(folder / "state")
        # Always the same events are held out.
        (folder / "state" / "secret").write_text("07" * 32)
        self.sink = FileSink(folder / "feedback", fsync=False)
        self.file = folder / "omdml.toml"
        tables = "\n".join(
            f"[models.{json.dumps(name)}]\n"
            + "\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items())
            for name, options in models.items()
        )
        self.file.write_text(
            f'[log]\npath = "{folder}/feedback"\nletters = "{folder}/letters"\n[store]\nurl = "dir:{folder}/state"\n'
            f'[catalogues.items]\npath = "{folder}/items"\n[guard]\non = {guard}\n{tables}\n'
        )

    @property
    def specs(self):
        return Specs(self.configuration, {"items": self.catalogue})

    def tell(self, *payloads, key="shop"):
        for payload in payloads:
            self.sink.send(payload, key)
        self.sink.flush()

    def log_read(self):
        return read_whole(FileBystander(self.folder / "feedback"))

    def worked(self):
        """What a worker makes of the log, from where the store says; then it stops."""
        worker = self.worker(source=FileSource(self.folder / "feedback"))
        run_until_idle(worker)
        worker.stop()
        worker.run()
        return self.store.claim("shop").checkpoint

    def omdml(self, *options):
        return CliRunner().invoke(main, ["replay", "-c", str(self.file), "--model", "shop", *options])


@pytest.fixture(autouse=True)
def _no_pause_between_polls(monkeypatch):
    monkeypatch.setattr("workers.operate.replay.POLL_S", 0.0)


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


def replayed(shop, learner=None, log=None):
    spec = replayed_spec(shop.specs, "shop", learner)
    model = ReplayedModel("shop", spec.fresh(), spec, ALONE, None)
    for records in log or shop.log_read():
        model.learn(records)
    model.finish()
    return model


def test_a_replay_learns_what_the_worker_learned_to_the_byte(shop):
    shop.tell(*events(120), *events(20, model="user-1"), *events(30, seed=5))
    checkpoint = shop.worked()
    model = replayed(shop)
    assert model.learner.to_bytes() == checkpoint.state
    assert (model.next, model.home) == (checkpoint.next, checkpoint.home)


def test_a_replay_leaves_no_trace_beside_a_log_that_a_worker_follows(shop):
    shop.tell(*events(50))
    worker = shop.worker(source=FileSource(shop.folder / "feedback"))
    run_until_idle(worker)
    before = {path.name: path.read_bytes() for path in (shop.folder / "feedback").iterdir()}
    assert replayed(shop).learner.version == 50
    assert {path.name: path.read_bytes() for path in (shop.folder / "feedback").iterdir()} == before
    shop.tell(*events(10, seed=1))
    run_until_idle(worker)
    assert worker.services.store.load("shop")[1].version == 60


def test_a_log_in_memory_is_read_whole_through_a_group_of_its_own(tmp_path):
    world = World(tmp_path, partitions=3)
    names = [f"user-{number}" for number in range(5)]
    for name in names:
        world.send(*events(7, model=name), key=name)
    records = [record for part in read_whole(MemorySource(world.log, "replay")) for record in part]
    assert len(records) == 35
    assert world.log.group("omdml").members == world.log.group("replay").members == []
    assert world.log.group("replay").committed == {}


def test_an_empty_log_and_one_that_ends_in_a_torn_line_come_to_an_end(shop):
    assert list(shop.log_read()) == []
    shop.tell(*events(3))
    (segment,) = (shop.folder / "feedback").glob("*.jsonl")
    with segment.open("ab") as file:
        file.write(TORN)
    assert sum(map(len, shop.log_read())) == 3


def test_a_log_that_is_not_there_is_an_error_and_none_is_made(tmp_path):
    with pytest.raises(SourceError, match="not there"):
        FileBystander(tmp_path / "feedback")
    assert list(tmp_path.iterdir()) == []


def test_events_on_another_partition_than_home_are_refused_as_by_a_worker(tmp_path):
    world = World(tmp_path, partitions=2)
    world.send(*events(5))
    world.send(*events(5, seed=1), key=living_on(world, other_than(world, "shop")))
    spec = Specs(world.configuration, {"items": world.catalogue}).find("shop")
    model = ReplayedModel("shop", spec.fresh(), spec, Placement.first("crc32", 2), None)
    for partition in world.log.partitions:
        model.learn(world.log.read(partition, 0, 100))
    assert model.learner.version == 5
    assert [refusal.error.reason for refusal in model.refused] == ["wrong_partition"] * 5
    with pytest.raises(StoreError, match="5 events of model 'shop' came by other partitions than its home"):
        fit.check_whole(model)


def test_a_model_that_moved_to_an_added_partition_is_replayed_in_order(tmp_path):
    world = World(tmp_path, partitions=2)
    name = next(one for one in map("user-{}".format, range(100)) if by_crc32(one.encode(), 4) >= 2)
    worker = world.worker()
    world.send(*events(20, model=name), key=name)
    run_until_idle(worker)
    worker.stop()
    worker.run()
    world.log.add_partitions(2)
    rehomed(world)
    world.send(*events(20, 1, model=name), key=name)
    run_until_idle(world.worker())
    placement = world.store.placement(world.log.topic_id)
    spec = Specs(world.configuration, {"items": world.catalogue}).find(name)
    model = ReplayedModel(name, spec.fresh(), spec, placement)
    for records in read_as_placed(lambda: MemorySource(world.log, uuid.uuid4().hex), placement, False):
        model.learn(records)
    learned = world.store.peek(name)
    assert model.learner.to_bytes() == learned.state
    assert (model.home, model.next) == (learned.home, learned.next)


def test_the_table_counts_each_mistake_before_it_was_learned(shop):
    shop.tell(*events(250))
    twin = LOMDML(dims=dict(shop.catalogue.dims))
    wrong = twin.learn_many(triplets(250), shop.catalogue.features).scores > 0
    curve = replayed(shop, "lomdml").curve
    assert [(stretch.comparisons, stretch.mistakes) for stretch in curve] == [
        (end, wrong[:end].sum()) for end in (100, 200, 250)
    ]
    assert [stretch.seconds for stretch in curve] == sorted(stretch.seconds for stretch in curve)


def test_several_learners_stand_side_by_side_in_one_table(shop):
    shop.tell(*events(150))
    printed = shop.omdml("--learner", "lomdml", "--learner", "qwise", "--learner", "cpmtml")
    assert printed.exit_code == 0, printed.output
    assert [line.split()[1] for line in printed.output.splitlines() if "100 " in line] == ["lomdml", "qwise"]
    assert "cpmtml: refused 150 not_accepted" in printed.output


def shares(text):
    """What a line of the table says of held-out events."""
    return [float(share) for share in re.findall(r"([\d.]+)%", text)]


def test_held_out_events_show_the_gain_over_the_plain_distance_and_the_start(tmp_path):
    shop = Shop(tmp_path, {"shop": {"learner": "lomdml", "rank": 3}}, guard="true")
    shop.tell(*events(3000))
    printed = shop.omdml("--learner", "lomdml", "--learner", "diagonal").output
    plain = next(line for line in printed.splitlines() if "plain distance, nothing learned" in line)
    lomdml, diagonal = (shares(line)[2:] for line in printed.splitlines() if "->" in line)
    assert re.search(r"% of \d+", plain)
    assert shares(plain)[0] == diagonal[0]
    assert lomdml[1] > lomdml[0]
    assert lomdml[1] > shares(plain)[0]


def test_every_row_is_asked_about_the_same_held_out_events(tmp_path):
    shop = Shop(tmp_path, {"shop": {"learner": "lomdml", "rank": 3}})
    shop.tell(*events(500))
    models = []
    for learner in ("lomdml", "diagonal", "qwise"):
        spec = replayed_spec(shop.specs, "shop", learner)._replace(guard=GuardConfig())
        models.append(ReplayedModel("shop", spec.fresh(), spec, ALONE, b"s" * 32))
    replay_output.learn(models, shop.log_read())
    kept = [[near_and_far(np.array(event.rows)).tolist() for event in model.progress.hold_out.kept] for model in models]
    assert len(kept[0]) > 2
    assert kept[1:] == kept[:1] * 2
    assert [order.events for model in models for order in model.orders()] == [len(kept[0])] * 9


def test_without_held_out_events_there_is_no_plain_row(shop):
    shop.tell(*events(60))
    model = replayed(shop)
    assert model.orders() == []
    assert prequential_table([model]).row_count == 1


@pytest.mark.parametrize("kind", ["pair", "quadruplet", "set"])
def test_the_plain_distance_is_asked_about_feedback_of_every_kind(tmp_path, kind):
    learner = {"pair": "cpmtml", "quadruplet": "omdml", "set": "setnet"}[kind]
    options = {"learner": learner} | ({"rank": 3, "tasks": list(TASKS)} if kind == "pair" else {})
    shop = Shop(tmp_path, {"shop": options}, guard="true")
    shop.tell(*map(encode, feedback(kind, 600)))
    printed = shop.omdml()
    assert printed.exit_code == 0, printed.output
    (plain,) = (shares(line)[0] for line in printed.output.splitlines() if "plain distance, nothing learned" in line)
    start, after = next(shares(line)[2:] for line in printed.output.splitlines() if "->" in line)
    assert 50 < plain <= 100
    assert after >= start > 50


def test_inspect_shows_the_same_baselines(tmp_path):
    shop = Shop(tmp_path, {"shop": {"learner": "lomdml", "rank": 3}}, guard="true")
    shop.tell(*events(3000))
    assert shop.omdml("--publish").exit_code == 0
    printed = shop.omdml().output
    plain = shares(next(line for line in printed.splitlines() if "plain distance, nothing learned" in line))[0]
    start, after = shares(next(line for line in printed.splitlines() if "->" in line))[2:]
    inspected = CliRunner().invoke(main, ["inspect", "-c", str(shop.file), "shop"]).output
    line = next(line for line in inspected.splitlines() if "held-out events in order" in line)
    assert shares(line) == [after, plain, start]


def test_the_first_half_of_the_log_is_fitted_and_the_rest_replayed(shop):
    shop.tell(*events(80), *(payload for payload in events(10, model="user-1")))
    first, rest, count = fit.cut(shop.log_read(), "shop", shop.specs.find("shop"))
    model = fit.fitted("shop", shop.specs.find("shop"), ALONE, first, None)
    for records in rest:
        model.learn(records)
    assert (count, model.learner.version) == (40, 40)
    items = {name: np.asarray(x) for name, x in shop.catalogue.features.items()}
    start = batch_start(Qwise(dims=dict(shop.catalogue.dims)), triplets(80)[:40], items)
    twin = Qwise(dims=dict(shop.catalogue.dims), init={name: M.astype(np.float32) for name, M in start.items()})
    twin.learn_many(triplets(80)[40:], items)
    assert model.learner.to_bytes() == twin.to_bytes()


def test_a_long_log_is_fitted_on_its_first_comparisons_only(shop):
    shop.tell(*events(80))
    assert fit.cut(shop.log_read(), "shop", shop.specs.find("shop"), most=25).events == 25


def test_a_ranking_is_never_cut_in_two(shop):
    shop.tell(
        *events(3), b'{"type":"ranking","model":"shop","query":"i0","relevant":["i1","i2"],"irrelevant":["i3","i4"]}'
    )
    assert fit.cut(shop.log_read(), "shop", shop.specs.find("shop"), most=2).events == 2
    shop.tell(*events(2))
    assert fit.cut(shop.log_read(), "shop", shop.specs.find("shop"), most=6).events == 3


def test_events_that_bring_vectors_and_broken_ones_are_fitted_like_others(shop):
    shop.tell(*events(20))
    brought = [json.loads(event) for event in events(40, seed=3)]
    for event in brought:
        event["features"] = {"new": {"shape": [0.5] * 9, "noise": [0.1] * 5}}
        event["query"] = "new"
    shop.tell(*(json.dumps(event).encode() for event in brought))
    shop.tell(b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"zebra"}', *events(61))
    first, _, _ = fit.cut(shop.log_read(), "shop", shop.specs.find("shop"))
    model = fit.fitted("shop", shop.specs.find("shop"), ALONE, first, None)
    assert [refusal.error.reason for refusal in model.refused] == ["unknown_item"]
    assert model.next == first[-1].offset + 1 or model.next > first[-2].offset


def test_a_learner_without_a_batch_form_and_an_empty_log_cannot_be_fitted(shop):
    with pytest.raises(StartError, match=r"lomdml has no batch form to begin at: pass --learner omdml --fit"):
        fit.cut(shop.log_read(), "shop", replayed_spec(shop.specs, "shop", "lomdml"))
    with pytest.raises(StartError, match=r"dca needs no start that is fitted on a log: .* leave --fit out"):
        fit.cut(shop.log_read(), "shop", replayed_spec(shop.specs, "shop", "dca"))
    with pytest.raises(StartError, match="too few to fit on"):
        fit.cut(shop.log_read(), "shop", shop.specs.find("shop"))


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
    other = FileSink(shop.folder / "feedback", fsync=False)
    model = replayed(shop)
    for event in events(40):
        other.send(event, "shop")
    model = replayed(shop)
    fit.publish(model, shop.store, worker.services.letters, "test")
    shop.tell(*events(10, seed=1))
    run_until_idle(worker)
    model.learner.learn_many(triplets(10, seed=1), shop.catalogue.features)
    assert shop.store.claim("shop").checkpoint.state == model.learner.to_bytes()


def test_a_model_that_exists_is_not_begun_anew_unless_it_may_be_deleted(shop):
    shop.tell(*events(60))
    before = shop.worked()
    refused = shop.omdml("--publish")
    assert refused.exit_code == 1
    assert "is in the store already, at version 60" in refused.output
    assert "--replace" in refused.output
    assert shop.store.claim("shop").checkpoint.state == before.state
    assert shop.omdml("--publish", "--replace", "--fit").exit_code == 0
    assert shop.store.claim("shop").checkpoint.version == 30


@pytest.mark.parametrize("loss", ["damaged", "gone"])
def test_a_model_whose_checkpoints_are_lost_is_learned_again_as_the_error_says(shop, loss):
    shop.tell(*events(30), *events(5, model="user-1"))
    before = shop.worked()
    for path in (shop.folder / "state" / "models" / "shop").rglob("*.checkpoint"):
        path.write_bytes(b"?") if loss == "damaged" else path.unlink()
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
        fit.publish(model, shop.store, None, "test")


def test_a_worker_that_claims_in_between_fences_the_replay(shop, monkeypatch):
    shop.tell(*events(10))
    model = replayed(shop)
    save = shop.store.save
    monkeypatch.setattr(
        shop.store, "save", lambda *written, **how: (shop.store.claim("shop"), save(*written, **how))[1]
    )
    with pytest.raises(Fenced, match="a worker took it meanwhile"):
        fit.publish(model, shop.store, letters_of(shop), "test")
    assert shop.store.current("shop") is None


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
        monkeypatch.setattr(shop.store, "claim", lambda one: (claim(one), shop.store.place(topic_id, ALONE, after))[0])
    with pytest.raises(PlacementChanged, match="start it again"):
        fit.publish(model, shop.store, letters_of(shop), "test", replace=True)
    # What was to be replaced is still there if models had moved before anything was done.
    assert (shop.store.current("shop") is not None) == before_the_claim
    assert (shop.store.peek("shop") is not None) == before_the_claim


def test_a_replay_that_cannot_be_published_closes_the_dead_letters(shop, monkeypatch):
    shop.tell(*events(10))
    letters = letters_of(shop)
    monkeypatch.setattr("workers.wiring.open_letters", lambda log: letters)
    closed = []
    monkeypatch.setattr(letters, "close", lambda: closed.append(True))
    monkeypatch.setattr(fit, "publish", refuse)
    assert shop.omdml("--publish").exit_code == 1
    assert closed == [True]


def refuse(*_):
    raise StoreError("store: away")


def letters_of(shop):
    return shop.worker().services.letters


def test_what_a_published_replay_refused_is_in_the_dead_letters(shop):
    shop.tell(*events(10), b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"zebra"}')
    assert shop.omdml("--publish").exit_code == 0
    letters = read_letters(record for part in read_whole(FileBystander(shop.folder / "letters")) for record in part)
    assert [letter.reason for letter in letters] == ["unknown_item"]


def test_a_log_without_an_event_of_the_model_begins_nothing(shop):
    shop.tell(*events(10, model="user-1"))
    refused = shop.omdml("--publish")
    assert (refused.exit_code, "nothing to begin with" in refused.output) == (1, True)
    assert shop.store.models() == []


def test_nothing_is_deleted_where_there_is_nothing_to_begin_with(shop):
    shop.tell(*events(10))
    shop.worked()
    other = Shop(shop.folder / "other")
    other.tell(*events(10, model="user-1"))
    empty = replayed(other)
    with pytest.raises(StoreError, match="nothing to begin with"):
        fit.publish(empty, shop.store, None, "test", replace=True)
    assert shop.store.current("shop").version == 10


def test_a_replay_is_old_news_whose_freshness_nobody_measures(shop):
    shop.tell(*events(10))
    assert shop.omdml("--publish").exit_code == 0
    assert shop.store.load("shop")[1].oldest_event_time is None


def test_a_model_of_a_pattern_is_replayed_with_the_patterns_settings(shop):
    shop.tell(*events(10, model="user-7"), key="user-7")
    spec = replayed_spec(shop.specs, "user-7")
    printed = CliRunner().invoke(
        main, ["replay", "-c", str(shop.file), "--model", "user-7", "--save", str(shop.folder / "state.bin")]
    )
    assert printed.exit_code == 0, printed.output
    assert LOMDML.from_bytes((shop.folder / "state.bin").read_bytes()).rank == spec.parameters["rank"] == 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--learner", "qwise", "--learner", "omdml", "--save", "x"], "take one learner"),
        (["--learner", "omdml", "--publish"], "set models.shop.learner first"),
        (["--replace"], "goes with --publish"),
        (["--learner", "nonsense"], "Invalid value"),
    ],
)
def test_options_that_contradict_each_other_are_refused(shop, options, told):
    refused = shop.omdml(*options)
    assert refused.exit_code == 2
    assert told in refused.output


def test_a_model_that_is_not_configured_is_named(shop):
    refused = CliRunner().invoke(main, ["replay", "-c", str(shop.file), "--model", "zebra"])
    assert (refused.exit_code, "no model 'zebra' is configured" in refused.output) == (2, True)


def test_quadruplets_keep_their_margins_in_a_fit(tmp_path):
    shop = Shop(tmp_path, {"shop": {"learner": "diagonal"}})
    told = list(feedback("quadruplet", 40))
    shop.tell(*map(encode, told))
    first, _, _ = fit.cut(shop.log_read(), "shop", shop.specs.find("shop"))
    spec = shop.specs.find("shop")
    _, margin, _ = fit.gathered(
        ReplayedModel("shop", spec.fresh(), spec, ALONE, None).locate(first), ["shape", "noise"]
    )
    np.testing.assert_array_equal(margin, [event.margin for event in told[:20]])


def test_nothing_learned_is_an_empty_row(shop):
    table = prequential_table([replayed(shop)])
    assert table.row_count == 1
