"""Replays: a log learned again beside the worker's group, fitted starts, and models that begin in a store."""

from __future__ import annotations

import json
import re
import uuid

import numpy as np
import pytest
from click.testing import CliRunner

from omdml import LOMDML
from omdml.engines.base import near_and_far
from omdml.errors import SourceError, StoreError
from omdml.feedback import encode
from omdml.streams.files.source import FileSource
from omdml.streams.files.ungrouped import UngroupedFileSource
from omdml.streams.letters import DeadLetters
from omdml.streams.memory_log import MemoryLog, MemorySink, MemorySource
from omdml.streams.partitioners import by_crc32
from omdml.streams.placement import Placement
from omdml.workers.cli import main
from omdml.workers.commands import replay_output
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.configuration.specs import Specs
from omdml.workers.operate import published_replay
from omdml.workers.operate.replay import ReplayedModel, prequential_table, read_as_placed, read_whole, replayed_spec
from tests.support.files.replays import ALONE, LoggedShop, replayed
from tests.support.worlds import (
    TASKS,
    World,
    events,
    extents,
    feedback,
    living_on,
    other_than,
    rehomed,
    run_until_idle,
    triplets,
)

TORN = b'{"type":"triplet","model":"shop"'


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
    with pytest.raises(SourceError, match="it does not exist"):
        UngroupedFileSource(tmp_path / "feedback")
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
    with pytest.raises(StoreError, match="5 events are on other partitions than the home of model 'shop'"):
        published_replay.check_whole(model, world.store)


def test_a_model_that_moved_to_an_added_partition_is_replayed_in_order(tmp_path):
    world = World(tmp_path, partitions=2)
    name = next(entry for entry in map("user-{}".format, range(100)) if by_crc32(entry.encode(), 4) >= 2)
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


def test_a_replay_of_a_model_whose_new_home_lost_all_records_leaves_its_mark(tmp_path):
    # Given a model that moved, and a home of which retention has deleted everything since
    world = World(tmp_path, partitions=2)
    name = next(entry for entry in map("user-{}".format, range(100)) if by_crc32(entry.encode(), 4) >= 2)
    for seed in range(2):
        worker = world.worker()
        world.send(*events(20, seed, model=name), key=name)
        run_until_idle(worker)
        worker.stop()
        worker.run()
        if not seed:
            world.log.add_partitions(2)
            rehomed(world)
    home = world.log.home(name)
    world.log.trim(home, 20)
    before = world.store.marks([home])[home]

    # If the rest of the log is replayed and published
    placement = world.store.placement(world.log.topic_id)
    spec = Specs(world.configuration, {"items": world.catalogue}).find(name)
    model = ReplayedModel(name, spec.fresh(), spec, placement)
    model.note_beginnings(extents(world))
    for records in read_as_placed(lambda: MemorySource(world.log, uuid.uuid4().hex), placement, False):
        model.learn(records)
    published_replay.publish(model, world.store, DeadLetters(MemorySink(MemoryLog())), "test", replace=True)
    assert (model.learner.version, model.home) == (20, home)

    # I expect workers to go on at what the log still holds, and to find no gap.
    assert world.store.marks([home])[home] == before == 20
    world.send(*events(5, 3, model=name), key=name)
    run_until_idle(world.worker())
    assert world.store.peek(name).version == 25


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
    """The percentages in a line of the table."""
    return [float(share) for share in re.findall(r"([\d.]+)%", text)]


def test_held_out_events_show_the_gain_over_the_plain_distance_and_the_start(tmp_path):
    shop = LoggedShop(tmp_path, {"shop": {"learner": "lomdml", "rank": 3}}, guard="true")
    shop.tell(*events(3000))
    printed = shop.omdml("--learner", "lomdml", "--learner", "diagonal").output
    plain = next(line for line in printed.splitlines() if "plain distance, nothing learned" in line)
    lomdml, diagonal = (shares(line)[2:] for line in printed.splitlines() if "->" in line)
    assert re.search(r"% of \d+", plain)
    assert shares(plain)[0] == diagonal[0]
    assert lomdml[1] > lomdml[0]
    assert lomdml[1] > shares(plain)[0]


def test_every_row_is_asked_about_the_same_held_out_events(tmp_path):
    shop = LoggedShop(tmp_path, {"shop": {"learner": "lomdml", "rank": 3}})
    shop.tell(*events(500))
    models = []
    for learner in ("lomdml", "diagonal", "qwise"):
        spec = replayed_spec(shop.specs, "shop", learner)._replace(guard=GuardConfig())
        models.append(ReplayedModel("shop", spec.fresh(), spec, ALONE, b"s" * 32))
    replay_output.learn(models, shop.log_read())
    held_out = [
        [near_and_far(np.array(event.rows)).tolist() for event in model.progress.hold_out.kept] for model in models
    ]
    assert len(held_out[0]) > 2
    assert held_out[1:] == held_out[:1] * 2
    assert [order.events for model in models for order in model.orders()] == [len(held_out[0])] * 9


def test_without_held_out_events_there_is_no_plain_row(shop):
    shop.tell(*events(60))
    model = replayed(shop)
    assert model.orders() == []
    assert prequential_table([model]).row_count == 1


@pytest.mark.parametrize("kind", ["pair", "quadruplet", "set"])
def test_the_plain_distance_is_asked_about_feedback_of_every_kind(tmp_path, kind):
    learner = {"pair": "cpmtml", "quadruplet": "omdml", "set": "setnet"}[kind]
    options = {"learner": learner} | ({"rank": 3, "tasks": list(TASKS)} if kind == "pair" else {})
    shop = LoggedShop(tmp_path, {"shop": options}, guard="true")
    shop.tell(*map(encode, feedback(kind, 600)))
    printed = shop.omdml()
    assert printed.exit_code == 0, printed.output
    (plain,) = (shares(line)[0] for line in printed.output.splitlines() if "plain distance, nothing learned" in line)
    start, after = next(shares(line)[2:] for line in printed.output.splitlines() if "->" in line)
    assert 50 < plain <= 100
    assert after >= start > 50


def test_inspect_shows_the_same_baselines(tmp_path):
    shop = LoggedShop(tmp_path, {"shop": {"learner": "lomdml", "rank": 3}}, guard="true")
    shop.tell(*events(3000))
    assert shop.omdml("--publish").exit_code == 0
    printed = shop.omdml().output
    plain = shares(next(line for line in printed.splitlines() if "plain distance, nothing learned" in line))[0]
    start, after = shares(next(line for line in printed.splitlines() if "->" in line))[2:]
    inspected = CliRunner().invoke(main, ["inspect", "-c", str(shop.file), "shop"]).output
    line = next(line for line in inspected.splitlines() if "held-out events in order" in line)
    assert shares(line) == [after, plain, start]


def test_inspect_shows_the_shrinkage_and_losses_of_the_default_learner(tmp_path):
    shop = LoggedShop(tmp_path, {"shop": {"learner": "dca", "coordinates": "features"}}, guard="true")
    shop.tell(*events(30))
    assert shop.omdml("--publish").exit_code == 0
    inspected = CliRunner().invoke(main, ["inspect", "-c", str(shop.file), "shop"]).output
    (line,) = (line for line in inspected.splitlines() if "shrinkage" in line)
    assert 0 < shares(line)[0] < 300
    # A sum over comparisons is no share of anything.
    losses = [line for line in inspected.splitlines() if "hedge loss" in line]
    assert len(losses) == 2
    assert not any("%" in line for line in losses)


def test_a_model_of_a_pattern_is_replayed_with_the_patterns_settings(shop):
    shop.tell(*events(10, model="user-7"), key="user-7")
    spec = replayed_spec(shop.specs, "user-7")
    printed = CliRunner().invoke(
        main, ["replay", "-c", str(shop.file), "--model", "user-7", "--save", str(shop.folder / "state.bin")]
    )
    assert printed.exit_code == 0, printed.output
    assert LOMDML.from_bytes((shop.folder / "state.bin").read_bytes()).rank == spec.parameters["rank"] == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--learner", "qwise", "--learner", "omdml", "--save", "x"], "take one learner"),
        (["--learner", "omdml", "--publish"], "set models.shop.learner first"),
        (["--replace"], "goes with --publish"),
        (["--learner", "nonsense"], "Invalid value"),
    ],
)
def test_options_that_contradict_each_other_are_refused(shop, options, expected):
    refused = shop.omdml(*options)
    assert refused.exit_code == 2
    assert expected in refused.output


def test_a_model_that_is_not_configured_is_named(shop):
    refused = CliRunner().invoke(main, ["replay", "-c", str(shop.file), "--model", "zebra"])
    assert (refused.exit_code, "no model 'zebra' is configured" in refused.output) == (2, True)


def test_a_replay_that_learned_nothing_still_has_a_row(shop):
    table = prequential_table([replayed(shop)])
    assert table.row_count == 1


def test_events_of_items_that_are_gone_are_reported_in_words(shop):
    event = {"type": "triplet", "model": "shop", "query": "i0", "relevant": "i1", "irrelevant": "gone"}
    shop.tell(*events(20), json.dumps(event).encode())
    printed = shop.omdml("--learner", "lomdml")
    assert "lomdml: refused 1 unknown_item: were these items deleted since?" in " ".join(printed.output.split())
