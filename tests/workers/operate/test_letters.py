"""Sending the events of dead letters again."""

from __future__ import annotations

import msgspec
import pytest

from omdml.errors import FeedbackError, SourceError
from omdml.feedback import Triplet, decode, encode
from omdml.streams.files.source import FileSink
from omdml.streams.letters import Book, Letter
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.resent_events import headers_again
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.configuration.config import FileLog
from omdml.workers.configuration.specs import Specs
from omdml.workers.model.user_shares import WINDOW
from omdml.workers.operate.letters import (
    PORTION,
    PORTION_BYTES,
    UsersRoom,
    fate,
    learnable,
    passed_letters,
    portions,
    resend,
)
from omdml.workers.operate.replay import read_whole
from omdml.workers.wiring.dead_letters import open_sender
from omdml.workers.wiring.feedback_log import open_ungrouped
from tests.support.worlds import World, configuration, events, letters, run_until_idle


def test_only_one_at_a_time_sends_letters_of_files_again(tmp_path):
    (tmp_path / "feedback").mkdir()
    log = FileLog(path=str(tmp_path / "feedback"), letters=str(tmp_path / "letters"))
    sender = open_sender(log)
    with pytest.raises(SourceError, match="another `omdml letters resend` is running"):
        open_sender(log)
    sender.close()
    open_sender(log).close()


def test_a_header_that_a_sender_made_up_does_not_mark_a_letter_as_sent(tmp_path):
    (tmp_path / "feedback").mkdir()
    log = FileLog(path=str(tmp_path / "feedback"), letters=str(tmp_path / "letters"))
    letter = Letter.of(Record(Partition("topic", 0), 7, b"refused"), FeedbackError("late"), "shop")
    sink = FileSink(tmp_path / "feedback")
    sink.send(b"sound", "shop", headers_again(letter, b"no secret of this store"))
    sink.close()
    for _ in range(2):
        sender = open_sender(log)
        sender.send([(letter, "shop")], b"the secret of this store")
        sender.close()
    # I expect the event to be sent, and by the second sender not again.
    assert [record.value for part in read_whole(open_ungrouped(log)) for record in part] == [b"sound", b"refused"]


def test_a_letter_that_a_router_cut_asks_for_the_event_itself(tmp_path):
    # Given the letter about an event in a topic that no worker reads
    world = World(tmp_path)
    large = Record(Partition("clicks-id", 1), 7, b"x" * 2_000_000)
    letter = Letter.of(large, FeedbackError("too large", reason="oversize"))
    # I expect that nobody is told to wait for a worker.
    specs = world.worker().services.specs
    why = learnable(letter, specs, passed_letters([letter], world.store), UsersRoom(specs, world.store)).why
    assert "send the event itself again" in why


def test_an_event_that_its_worker_may_yet_learn_is_not_sent_again(tmp_path):
    # Given an event of an item that was not there, and a worker killed before it saved anything
    world = World(tmp_path)
    world.send(*events(5), encode(Triplet(model="shop", query="i0", relevant="i1", irrelevant="i2")))
    (partition,) = world.log.partitions
    letter = Letter(
        reason="unknown_item",
        error="i1",
        partition=partition,
        offset=5,
        payload=world.log.read(partition, 5, 1)[0].value,
    )
    # While its partition's mark is not behind it, I expect it to be left alone, and to be sent from then on.
    worker = world.worker()
    specs = worker.services.specs
    room = UsersRoom(specs, world.store)
    assert "try again" in learnable(letter, specs, passed_letters([letter], world.store), room).why
    run_until_idle(worker)
    assert learnable(letter, specs, passed_letters([letter], world.store), room).event is not None
    # Once its own model has saved, it need not wait for another model that holds the mark, either.
    assert world.store.move_mark(partition, 6, 2)
    named = msgspec.structs.replace(letter, model="shop")
    assert learnable(named, specs, passed_letters([named], world.store), room).event is not None


def test_an_event_that_was_learned_after_its_letter_is_reported_as_learned(tmp_path):
    # Given letters about an event that its worker learned after a crash, and about one that it refused again
    world = World(tmp_path)
    world.send(*events(5), encode(Triplet(model="shop", query="i0", relevant="nowhere", irrelevant="i2")))
    run_until_idle(world.worker())
    (partition,) = world.log.partitions
    learned, refused = (
        Letter(
            reason="unknown_item",
            error="i1",
            partition=partition,
            offset=offset,
            payload=world.log.read(partition, offset, 1)[0].value,
            model=model,
        )
        for offset, model in ((4, None), (5, "shop"))
    )
    book = Book({letter.position: letter for letter in (learned, refused)}, set(), set())
    # I expect the checkpoint to tell them apart, whether or not the letter knew the model.
    assert "was learned, or held out" in fate(learned, book, world.store)
    assert "was learned, or held out" in fate(msgspec.structs.replace(learned, model="shop"), book, world.store)
    assert fate(refused, book, world.store) == ""
    # Nothing is left to do about an event that was sent again, either.
    book.resent.add(refused.position)
    assert "sent again: nothing is left to do" in fate(refused, book, world.store)
    # A payload that names no model, and a store that knows nothing, say nothing.
    broken = msgspec.structs.replace(learned, payload=b"{broken")
    assert fate(broken, book, world.store) == ""
    assert fate(learned, book, World(tmp_path / "other").store) == ""


def test_a_letter_with_an_endless_name_of_a_model_keeps_no_other_waiting(tmp_path):
    # Given a worker on a store in a folder that refused an event of such a model, and one of an unknown item
    world = World(tmp_path)
    world.store = DirectoryStore(tmp_path / "store")
    long = Triplet(model="m" * 300, query="i0", relevant="i1", irrelevant="i2")
    world.send(encode(long), encode(Triplet(model="shop", query="i0", relevant="nowhere", irrelevant="i2")))
    worker = world.worker()
    run_until_idle(worker)
    book = Book({letter.position: letter for letter in letters(world)}, set(), set())
    named, other = sorted(book.letters.values(), key=lambda letter: letter.offset)
    assert len(named.model or "") == 300
    # Workers have passed both letters' events, and the store is not asked for such a name.
    assert passed_letters(book.letters.values(), world.store) == set(book.letters)
    specs = worker.services.specs
    assert "at most 200" in learnable(named, specs, {named.position}, UsersRoom(specs, world.store)).why
    assert fate(named, book, world.store) == fate(other, book, world.store) == ""


def limited(share):
    """A model that takes this many comparisons of one user."""
    return {"shop": {"learner": "lomdml", "rank": 2, "max_share_a_user": share / WINDOW}}


def test_events_whose_user_still_has_no_room_are_not_sent_again(tmp_path):
    # Given letters about the third event of each of two users, of whom a model takes two
    world = World(tmp_path, models=limited(2))
    for user in ("anna", "ben"):
        world.send(*(encode(msgspec.structs.replace(decode(event), user=user)) for event in events(3)))
    worker = world.worker()
    run_until_idle(worker)
    refused = list(letters(world))
    assert [letter.reason for letter in refused] == ["user_share"] * 2
    # As long as nobody sends more, I expect that none of them is sent.
    sent, left = resend(refused, worker.services.specs, world.store, None)
    assert (sent, left.total()) == (0, 2)
    assert all("its user would have more than 2" in why for why in left)
    # If a third event is allowed, both are sent, but no fourth one.
    raised = Specs(configuration(tmp_path / "items", limited(3)), {"items": world.catalogue})
    assert resend([*refused, *refused], raised, world.store, None).sent == 2


def test_letters_are_sent_again_in_portions_of_so_many_or_so_many_bytes():
    small = Letter(reason="", error="", partition=Partition("t", 0), offset=0, payload=b"{}")
    large = msgspec.structs.replace(small, payload=b"x" * PORTION_BYTES)
    letters = [(small, "shop")] * (PORTION + 2) + [(large, "shop"), (small, "shop")]
    parts = list(portions(letters))
    assert [len(part) for part in parts] == [PORTION, 3, 1]
    assert [letter for part in parts for letter in part] == letters
    assert list(portions([])) == []
