"""The guard of a model in parts judges the whole model by the events that all parts hold out."""

from __future__ import annotations

import msgspec

from omdml.streams.part_names import part_name
from omdml.workers.model.judging.held_out_draw import HoldOutState
from omdml.workers.model.judging.held_out_window import JudgingEvent
from omdml.workers.model.parts.merged_model import in_turn, still_judging
from tests.support.learning.parts import GUARD, drained, hot_world, scatter
from tests.support.worlds import events, is_held_out


def hostile(world, count, seed):
    """Send events that teach the reverse, all of them learned by part 1; those that will be held out are sound."""
    secret, key = world.store.secret(), next(f"y{i}" for i in range(99) if world.log.home(f"y{i}").number == 1)
    for payload in events(count, seed=seed, model="hot"):
        event = msgspec.json.decode(payload)
        if not is_held_out(secret, part_name("hot", 1), 1, world.log.end(world.log.partitions[1]), GUARD.every):
            event["relevant"], event["irrelevant"] = event["irrelevant"], event["relevant"]
        world.log.send(msgspec.json.encode(event), key)


def test_the_guard_judges_by_what_all_parts_hold_out(tmp_path):
    world = hot_world(tmp_path, guard=GUARD)
    scatter(world, 1200)
    drained(world, world.worker(), turns=120)
    before = world.store.current("hot")
    held = [world.store.peek(part_name("hot", number)).progress["hold_out"]["count"] for number in range(4)]
    assert before.version + sum(held) == 1200
    hostile(world, 6000, seed=8)
    drained(world, world.worker(), turns=200)
    assert world.store.current("hot").version < world.store.peek("hot").version
    last = world.store.history("hot")[-1]
    assert last["what"] == "held"
    assert "not as good on" in last["reason"]
    # The decision is based on more queries than part 1 holds out, so events of other parts judge, too.
    queries_of_part_1 = {rows[0][0] for rows, *_ in world.store.peek(part_name("hot", 1)).progress["hold_out"]["kept"]}
    assert int(last["reason"].split("not as good on ")[1].split()[0]) > len(queries_of_part_1) > 60


def test_the_next_owner_goes_on_from_what_the_checkpoint_says_was_judged(tmp_path):
    world = hot_world(tmp_path, guard=GUARD)
    scatter(world, 1200)
    drained(world, world.worker(), turns=120)
    hostile(world, 6000, seed=8)
    drained(world, world.worker(), turns=200)
    live, checkpoint = world.store.current("hot"), world.store.peek("hot")
    assert checkpoint.progress["yardstick"]["withheld"]
    drained(world, world.worker(), turns=10)
    assert world.store.current("hot") == live
    assert world.store.peek("hot").progress["yardstick"]["version"] == checkpoint.progress["yardstick"]["version"]


def test_the_windows_of_parts_are_one_whose_newest_events_come_last():
    held = {0: [JudgingEvent([[number, 1, 2]]) for number in range(3)], 2: [JudgingEvent([[9, 1, 2]])]}
    assert [event.rows[0][0] for event in in_turn(held)] == [0, 1, 2, 9]
    assert still_judging(HoldOutState(5, 10, "", held[0]), 9) == held[0][2:]
    assert still_judging(HoldOutState(5, 10, "", held[0]), 0) == held[0]
    assert still_judging(HoldOutState(5, 10, "", held[0]), 10) == []
