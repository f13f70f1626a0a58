"""``omdml doctor --audit``: it counts what became of every event, and says what does not add up."""

from __future__ import annotations

import msgspec
import pytest
from click.testing import CliRunner

from omdml.errors import CorruptError
from omdml.feedback import Ranking, Triplet, encode
from omdml.streams.files.source import FileSink
from omdml.streams.letters import Book, Letter
from omdml.streams.part_names import part_name
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.cli import main
from omdml.workers.commands.audit import show
from omdml.workers.configuration.specs import Specs
from omdml.workers.operate import models as upkeep
from omdml.workers.operate.audit import Audit, LetterPositions, Report
from omdml.workers.operate.letters import fate
from tests.support.forks import ForkedProcess
from tests.support.learning.audits import audited
from tests.support.learning.parts import hot_world, scatter
from tests.support.learning.restored_stores import put_checkpoints
from tests.support.processes import wait_for
from tests.support.worlds import World, catalogue, events, letters, rehomed, stop

BROKEN = encode(Triplet(model="shop", query="i0", relevant="nobody", irrelevant="i3"))


@pytest.fixture
def world(tmp_path):
    """40 events of a model, one of them a ranking and one refused, and a line that is no event: learned and saved."""
    world = World(tmp_path)
    ranking = Ranking(model="shop", query="i0", relevant=("i1", "i2"), irrelevant=("i3",))
    world.send(*events(20), BROKEN, b"no event", encode(ranking), *events(18, seed=1))
    stop(world.worker())
    return world


def tampered(world, **changes):
    """Change what the checkpoint of the model says of its events."""
    epoch, checkpoint, _ = world.store.claim("shop")
    tally = {**checkpoint.progress["tally"], **changes}
    changed = msgspec.structs.replace(checkpoint, progress={**checkpoint.progress, "tally": tally})
    world.store.save(changed, epoch, back=True)


def test_a_log_that_was_learned_adds_up_and_what_is_not_taken_is_lag(world):
    world.send(*events(5, seed=2))
    results, report = audited(world)
    shop = results.models["shop"]
    assert (shop.tally.learned, shop.tally.held, shop.events, shop.letters, shop.behind) == (39, 0, 39, 1, 5)
    assert [(strays.letters, strays.missing) for strays in results.strays.values()] == [(1, 0)]
    assert report == ({}, [])


def test_held_out_events_are_counted_too(tmp_path):
    world = World(tmp_path)
    world.configuration = msgspec.structs.replace(
        world.configuration, guard=msgspec.structs.replace(world.configuration.guard, on=True)
    )
    world.send(*events(100))
    stop(world.worker())
    result, report = audited(world)
    shop = result.models["shop"]
    assert shop.tally.held == world.store.peek("shop").progress["hold_out"]["count"] > 0
    assert (shop.tally.learned + shop.tally.held, report) == (100, ({}, []))


def test_a_restarted_worker_goes_on_counting(world):
    world.send(*events(5, seed=2))
    stop(world.worker())
    result, report = audited(world)
    assert (result.models["shop"].tally.since, result.models["shop"].tally.learned, report) == (0, 44, ({}, []))


@pytest.mark.parametrize(
    ("learned", "text"), [(38, "1 of 39 events at offsets 0 to 40 are neither"), (40, "1 more events were learned")]
)
def test_a_count_that_is_off_by_one_is_reported_with_offsets(world, learned, text):
    tampered(world, learned=learned)
    wrong = audited(world)[1].wrong
    assert text in wrong["shop"]
    assert "omdml replay --model shop --publish --replace" in wrong["shop"]


def test_nobody_is_advised_to_learn_events_again_that_the_log_lost(world):
    (partition,) = world.log.partitions
    records = world.log.read(partition, 0, 100)
    # Compaction deletes records like this.
    world.log._records[partition] = records[:5] + records[10:]
    wrong = audited(world)[1].wrong["shop"]
    assert "5 more events were learned and held out than the log holds at offsets 0 to 40. If the topic was" in wrong
    assert "leave it as it is, because a replay would forget them. Otherwise they were learned twice: omdml" in wrong


def test_advice_about_missing_events_warns_of_what_a_replay_would_forget(world):
    tampered(world, learned=20)
    world.log.trim(world.log.partitions[0], 10)
    wrong = audited(world)[1].wrong["shop"]
    assert "9 of 29 events at offsets 10 to 40 are neither" in wrong
    assert wrong.endswith("This forgets what was learned from events that the log no longer holds")


def test_a_lost_letter_is_an_event_without_a_fate(world):
    (graves,) = world.graves.partitions
    world.graves.trim(graves, 1)
    message = "1 of 40 events at offsets 0 to 40 are neither learned nor held out nor dead letters"
    assert message in audited(world)[1].wrong["shop"]
    world.graves.trim(graves, 2)
    assert "1 in partition 0, from offset 21 on" in audited(world)[1].wrong[""]


def test_with_incomplete_letters_it_says_that_it_cannot_know(world):
    result, report = audited(world, LetterPositions(most=0))
    assert report.wrong == {}
    assert "some dead letters were deleted" in report.limits[0]
    assert result.models["shop"].missing == 1


def test_events_that_retention_deleted_are_no_fault_but_a_limit(world):
    world.log.trim(world.log.partitions[0], 10)
    result, report = audited(world)
    assert report.wrong == {}
    assert "counts of 'shop' begin with events that the log no longer holds" in report.limits[0]
    assert result.models["shop"].missing == 0


def test_a_checkpoint_beyond_the_end_of_the_log_is_a_fault(world):
    tampered(world, until=41)
    world.log._records[world.log.partitions[0]] = world.log.read(world.log.partitions[0], 0, 30)
    assert "is at offset 41, but the log ends at 30" in audited(world)[1].wrong["shop"]


def test_events_from_before_a_reset_are_a_limit_of_the_audit(world):
    spec = Specs(world.configuration, {"items": world.catalogue}).find("shop")
    assert upkeep.reset(world.store, spec, "shop", "test") == 41
    world.send(*events(5, seed=2))
    stop(world.worker())
    result, report = audited(world)
    assert (result.models["shop"].tally.learned, result.models["shop"].before) == (5, 39)
    assert report.wrong == {}
    assert "39 events are before the place at which counting of 'shop' began" in report.limits[0]


def test_events_of_a_deleted_model_are_a_limit_of_the_audit(world):
    world.store.delete("shop")
    report = audited(world)[1]
    assert report.wrong == {}
    assert "39 events are about 'shop', which the store does not have" in report.limits[0]


def test_a_model_whose_checkpoints_are_gone_has_lost_its_events(world):
    put_checkpoints(world.store, "shop", [])
    wrong = audited(world)[1].wrong["shop"]
    assert "has no checkpoint of it, and 39 of its events, at offsets 0 to 40" in wrong
    assert "omdml replay --model shop --publish --replace" in wrong
    # What is not taken yet is no loss.
    world.store.move_mark(world.log.partitions[0], 41, 0)
    results, report = audited(world)
    assert report.wrong == {}
    # Every event of it stands in the table.
    shop = results.models["shop"]
    assert (shop.events, shop.letters, shop.behind) == (0, 1, 39)


def test_events_lost_before_the_first_one_learned_are_reported_separately(tmp_path):
    world = World(tmp_path)
    world.send(*events(20))
    world.store.place(world.log.topic_id, None, Placement.first("crc32", 1))
    world.store.move_mark(world.log.partitions[0], None, 10)
    stop(world.worker())
    (limit,) = audited(world)[1].limits
    assert "10 events are before the first one that 'shop' learned" in limit
    assert "they were lost" in limit


def test_a_copy_in_the_place_of_a_deleted_model_adds_up(world):
    world.send(*events(5, 2, model="user-1"))
    stop(world.worker())
    world.store.delete("user-1")
    spec = Specs(world.configuration, {"items": world.catalogue}).find("shop")
    topic_id = world.log.topic_id
    upkeep.copy(world.store, "shop", "user-1", spec, topic_id, world.store.placement(topic_id), "test")
    assert world.store.peek("user-1").next == 46
    world.send(*events(3, 3, model="user-1"))
    configuration = world.configuration
    models = {**configuration.models, "user-1": configuration.models["shop"]}
    world.configuration = msgspec.structs.replace(configuration, models=models)
    stop(world.worker())
    result, report = audited(world)
    assert (result.models["user-1"].tally.learned, result.models["user-1"].before, report.wrong) == (3, 5, {})


def test_a_checkpoint_of_a_release_that_did_not_count_begins_at_its_end(world):
    epoch, checkpoint, _ = world.store.claim("shop")
    older = {name: value for name, value in checkpoint.progress.items() if name != "tally"}
    world.store.save(msgspec.structs.replace(checkpoint, progress=older), epoch, back=True)
    world.send(*events(5, seed=2))
    stop(world.worker())
    result, report = audited(world)
    shop = result.models["shop"]
    assert (shop.tally.since, shop.tally.learned, shop.before, report.wrong) == (41, 5, 39, {})


def test_events_learned_from_another_log_are_no_fault_of_this_one(world):
    epoch, checkpoint, _ = world.store.claim("shop")
    tally = {**checkpoint.progress["tally"], "home": "another-log/0"}
    moved = msgspec.structs.replace(
        checkpoint, progress={**checkpoint.progress, "tally": tally}, home=Partition("another-log", 0)
    )
    world.store.save(moved, epoch, back=True)
    result, report = audited(world)
    assert result.models["shop"].missing == 0
    assert not report.wrong
    assert any("'shop' learned from another log" in limit for limit in report.limits)


def test_after_a_rehome_what_lies_on_the_new_home_is_lag_until_it_is_taken(tmp_path):
    world = World(tmp_path, partitions=1)
    name = next(name for name in map("user-{}".format, range(9)) if Placement.first("crc32", 2).home(name) == 1)
    world.send(*events(20, model=name), key=name)
    stop(world.worker())
    world.log.add_partitions(1)
    rehomed(world)
    world.send(*events(5, 1, model=name), key=name)
    model = audited(world)[0].models[name]
    assert (model.before, model.events, model.behind) == (0, 20, 5)
    stop(world.worker())
    result, report = audited(world)
    model = result.models[name]
    assert (model.before, model.events, model.behind, report.wrong) == (20, 5, 0, {})


def test_events_that_name_a_part_are_not_held_against_it(tmp_path):
    world = hot_world(tmp_path, partitions=1)
    scatter(world, 10)
    world.send(*events(3, model=part_name("hot", 0)))
    scatter(world, 10, seed=1)
    stop(world.worker())
    results, report = audited(world)
    assert (results.models[part_name("hot", 0)].events, report) == (20, ({}, []))
    book = Book({}, set(), set())
    assert [fate(letter, book, world.store) for letter in letters(world)] == ["", "", ""]


def test_letters_about_models_that_the_store_does_not_hold_are_in_the_table(world, capsys):
    world.send(*events(4, 2, model="nobody"))
    stop(world.worker())
    results, report = audited(world)
    assert [(strays.letters, strays.missing) for strays in results.strays.values()] == [(5, 0)]
    assert report == ({}, [])
    show(results, report)
    assert "of no model there │ 5 " in capsys.readouterr().out


def test_in_an_empty_store_the_whole_log_is_not_yet_taken(tmp_path, capsys):
    # Given a log that workers have learned, and a store that lost everything
    world = World(tmp_path)
    world.send(*events(20), b"no event")
    stop(world.worker())
    world.store = MemoryStore()
    results, report = audited(world)
    show(results, report)
    row = next(line for line in capsys.readouterr().out.splitlines() if "of no model there" in line)
    # I expect the dead letter and 20 events that wait.
    assert [int(cell) for cell in row.strip("│ ").split("│")[1:]] == [21, 0, 0, 0, 1, 20, 0]


def test_letters_about_a_model_that_is_not_configured_any_more_are_its_own(world):
    configuration = world.configuration
    world.send(*events(5, 2, model="user-1"))
    stop(world.worker())
    world.configuration = msgspec.structs.replace(configuration, models={"shop": configuration.models["shop"]})
    world.send(*events(4, 3, model="user-1"))
    stop(world.worker())
    result, report = audited(world)
    user = result.models["user-1"]
    assert (user.tally.learned, user.events, user.letters, user.behind, report) == (5, 5, 4, 0, ({}, []))


def test_only_positions_of_letters_are_counted_as_dead_letters(world):
    partition, other = Partition("log", 0), Partition("log", 1)
    letters = LetterPositions()
    line = msgspec.json.encode({"partition": partition, "offset": 7, "reason": "x", "error": "", "payload": ""})
    again = msgspec.json.encode({"resent": [partition, 8]})
    record = world.log.read(world.log.partitions[0], 0, 1)[0]
    letters.read(msgspec.structs.replace(record, value=value) for value in (line, line, again, b"{torn"))
    assert letters.about(partition, [6, 7, 8]) == [False, True, False]
    assert letters.about(other, [7]) == [False]


@pytest.mark.parametrize("offset", [-1, 2**63, 10**30])
def test_a_line_among_the_letters_with_an_offset_that_no_log_has_is_passed_over(world, offset):
    line = msgspec.json.encode({**msgspec.json.decode(letters(world)[0].encode()), "offset": offset})
    record = world.log.read(world.log.partitions[0], 0, 1)[0]
    positions = LetterPositions()
    positions.read([msgspec.structs.replace(record, value=line)])
    assert positions.about(Partition("log", 0), [7]) == [False]
    with pytest.raises(CorruptError, match="cannot be read"):
        Letter.decode(line)


def test_doctor_reads_a_whole_installation(tmp_path):
    catalogue(tmp_path / "items")
    (tmp_path / "omdml.toml").write_text(
        f'[log]\npath = "{tmp_path}/feedback"\nletters = "{tmp_path}/letters"\n[store]\nurl = "dir:{tmp_path}/state"\n'
        f'[catalogues.items]\npath = "{tmp_path}/items"\n[models.shop]\nlearner = "lomdml"\nrank = 3\n'
    )
    sink = FileSink(tmp_path / "feedback")
    for event in (*events(100), BROKEN):
        sink.send(event, key="shop")
    sink.flush()
    store = DirectoryStore(tmp_path / "state")
    worker = ForkedProcess(tmp_path, "worker", "--config", str(tmp_path / "omdml.toml"))
    wait_for(lambda: (saved := store.peek("shop")) and saved.next > 1 << 40, "the events to be saved", 60, worker)
    assert worker.stop() == 0
    command = ["doctor", "--audit", "--config", str(tmp_path / "omdml.toml")]
    result = CliRunner().invoke(main, command)
    assert "everything adds up" in result.output, result.output
    assert result.exit_code == 0
    for segment in (tmp_path / "letters").glob("*.jsonl"):
        segment.write_bytes(b"")
    result = CliRunner().invoke(main, command)
    assert "1 of 101 events at offsets" in result.output, result.output
    assert result.exit_code == 1
    sink.close()


def test_an_audit_with_unknowns_says_so_in_its_last_line(capsys):
    empty = Audit({}, [], LetterPositions(), Placement.first("murmur2", 1))
    show(empty, Report({}, ["1,305 events of 'shop' are before the place at which counting began"]))
    *_, message, last = capsys.readouterr().out.splitlines()
    assert message.startswith("not known: 1,305 events")
    assert last == "everything that is known adds up: one thing is not known, see above"
    show(empty, Report({}, []))
    assert capsys.readouterr().out.splitlines()[-1] == "everything adds up"
