"""Many models, little memory: what is dropped comes back as it was, and no model waits for ever."""

from __future__ import annotations

from omdml.errors import StoreError
from omdml.workers.model.memory_budget import MemoryBudget
from tests.support.worlds import World, events, letters, run_until_idle

NAMES = [f"user-{number}" for number in range(6)]


def small(worker, models):
    """Give a worker memory for this many models of the test, and half of one more; returns the worker."""
    worker.services.memory.limit = (models + 0.5) * 16_000
    return worker


def in_memory(worker):
    return [name for owned in worker.partitions.values() for name in owned.models.loaded]


def interleaved(world, rounds=10):
    """Send three events of each model in turn, in each round; yields after each round."""
    streams = {name: list(events(3 * rounds, seed=3, model=name)) for name in NAMES}
    for turn in range(rounds):
        for name in NAMES:
            world.send(*streams[name][3 * turn : 3 * turn + 3], key=name)
        yield


def states(world):
    return {name: world.store.claim(name).checkpoint.state for name in NAMES}


def test_models_that_come_and_go_end_byte_for_byte_like_models_that_stay(tmp_path):
    worlds = [World(tmp_path / name, partitions=2) for name in ("little", "enough")]
    workers = [small(worlds[0].worker(), 2), worlds[1].worker()]
    for world, worker in zip(worlds, workers, strict=True):
        for _ in interleaved(world):
            run_until_idle(worker, turns=5)
        run_until_idle(worker)
    assert len(in_memory(workers[0])) <= 3
    assert len(in_memory(workers[1])) == len(NAMES)
    assert states(worlds[0]) == states(worlds[1])
    assert [world.store.current(name).version for world in worlds for name in NAMES] == [30] * 12


def test_of_one_poll_no_more_models_are_in_memory_than_there_is_room_for(tmp_path):
    world = World(tmp_path)
    worker = small(world.worker(), 2)
    for _ in interleaved(world):
        pass
    counts = []
    claim = world.store.claim
    world.store.claim = lambda name: counts.append(len(in_memory(worker))) or claim(name)
    run_until_idle(worker)
    assert max(counts) <= 3
    assert [world.store.current(name).version for name in NAMES] == [30] * len(NAMES)


def test_the_model_that_was_not_used_for_longest_goes_first():
    dropped = []
    memory = MemoryBudget(limit=30)

    def drop(name):
        dropped.append(name)
        memory.forget(name)

    for name in ("one", "two", "three", "one"):
        memory.use(name, 10, drop)
    memory.make_room()
    assert dropped == []
    memory.use("four", 10, drop)
    memory.make_room()
    assert (dropped, memory.total, len(memory)) == (["two"], 30, 3)
    memory.use("five", 1000, drop)
    memory.make_room()
    assert (dropped, memory.total) == (["two", "three", "one", "four"], 1000)


def test_events_that_were_taken_before_load_no_checkpoint(tmp_path, monkeypatch):
    world = World(tmp_path)
    worker = world.worker()
    for _ in interleaved(world, rounds=3):
        run_until_idle(worker)
    world.log.expel(worker.services.source)
    (partition,) = world.log.partitions
    marks = world.store.marks([partition])
    assert world.store.move_mark(partition, marks[partition], 0, marks.replacements)
    claimed, claim = [], world.store.claim
    monkeypatch.setattr(world.store, "claim", lambda name: claimed.append(name) or claim(name))
    successor = world.worker()
    world.send(*events(1, seed=5, model=NAMES[2]))
    run_until_idle(successor)
    assert claimed == [NAMES[2]]
    assert world.store.marks([partition])[partition] == 55
    assert claim(NAMES[2]).checkpoint.version == 10


def test_a_store_that_is_away_while_room_is_made_loses_and_doubles_nothing(tmp_path, monkeypatch):
    world, twin = World(tmp_path / "one"), World(tmp_path / "other")
    worker = small(world.worker(), 1)

    def away(*_, **__):
        raise StoreError("store memory: away")

    for turn, _ in enumerate(interleaved(world)):
        world.send(b"{nonsense")
        with monkeypatch.context() as outage:
            if turn % 2:
                outage.setattr(world.store, ("save", "claim", "publish", "positions")[turn // 2 % 4], away)
            run_until_idle(worker, turns=3)
        run_until_idle(worker, turns=5)
    sitting = twin.worker()
    for _ in interleaved(twin):
        run_until_idle(sitting)
    assert states(world) == states(twin)
    assert [letter.reason for letter in letters(world)] == ["not_json"] * 10


def test_a_flood_of_one_model_does_not_keep_the_others_from_being_saved(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    # Each turn may write one checkpoint.
    worker.services.allowance.rate = worker.services.allowance.burst = 1.0
    worker.services.allowance.left = 0.0
    world.send(*(event for name in NAMES for event in events(1, model=name)))
    for event in events(40):
        world.send(event)
        worker.step()
    run_until_idle(worker, turns=2)
    positions = world.store.positions([*NAMES, "shop"])
    assert set(positions) == {*NAMES, "shop"}
    assert positions["shop"].next > 30


def test_the_mark_stays_below_what_is_not_saved(tmp_path):
    world = World(tmp_path)
    worker = world.worker()
    worker.services.allowance.rate = worker.services.allowance.burst = 1.0
    worker.services.allowance.left = 0.0
    world.send(*events(5, model=NAMES[0]), *events(5, model=NAMES[1]), *events(5, model=NAMES[2]))
    (partition,) = world.log.partitions
    marks = []
    for _ in range(6):
        worker.step()
        marks.append(world.store.marks([partition]).get(partition))
    assert sorted(set(marks)) == [5, 10, 15]
