"""Formats carry a number that changes when they do, and every number there was is kept as a sample."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from omdml import formats
from omdml.errors import CorruptError, FormatError, OmdmlError, StoreError
from omdml.formats import CHECKPOINT, STATE, Format
from omdml.learners import Learner
from omdml.snapshot import Checkpoint, pack, unpack
from omdml.streams.letters import read_book
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.configuration.specs import Specs
from omdml.workers.operate import models
from tests.formats import contract
from tests.formats.samples import HERE, SAMPLES, Sample
from tests.support import worlds
from tests.support.learning import store_samples
from tests.support.pauses import _no_waiting  # noqa: F401

every_format = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


@every_format
def test_kept_samples_load_or_are_refused_by_their_number(sample: Sample, tmp_path: Path) -> None:
    contract.check_that_kept_samples_load(sample, tmp_path)


@every_format
def test_a_newer_number_is_refused_with_what_to_do(sample: Sample, tmp_path: Path) -> None:
    contract.check_that_a_newer_number_is_refused(sample, tmp_path)


@every_format
def test_another_structure_needs_another_number(sample: Sample, tmp_path: Path) -> None:
    contract.check_that_what_is_written_is_as_its_sample(sample, tmp_path)


def test_every_format_has_samples():
    folders = {folder.name.rpartition("-")[0] for folder in HERE.glob("*-[0-9]*")}
    assert folders == {kind.what.replace(" ", "-") for kind in vars(formats).values() if isinstance(kind, Format)}


@pytest.mark.parametrize("path", sorted((HERE / "earlier_states").iterdir()), ids=lambda path: path.stem)
def test_a_state_of_an_early_layout_is_refused_as_old_and_not_as_damaged(path):
    expected = rf"written by an older omdml \(format 1, this one writes {STATE.number}\): run the"
    with pytest.raises(FormatError, match=expected):
        Learner.from_bytes(path.read_bytes())


def test_an_older_number_than_is_read_is_refused():
    with pytest.raises(StoreError, match=r"state: written by an older omdml \(format 1, this one reads 2 to 3\)"):
        Format("store", 3, oldest=2).check(1, "state", StoreError)


@pytest.mark.parametrize("number", [None, "1", 1.0, True, 0, -1])
def test_a_value_that_cannot_be_a_format_number_is_damage(number):
    with pytest.raises(CorruptError, match="expected a number from 1") as caught:
        CHECKPOINT.check(number, "checkpoint")
    assert not isinstance(caught.value, FormatError)


def test_a_number_changed_by_damage_does_not_pass_for_a_newer_one():
    data = pack({}, {}, CHECKPOINT)
    with pytest.raises(CorruptError, match="damaged") as caught:
        unpack(data.replace(b'\\"format\\":%d' % CHECKPOINT.number, b'\\"format\\":9'), CHECKPOINT)
    assert not isinstance(caught.value, FormatError)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_damage_in_the_state_is_noticed_in_a_checkpoint_of_any_number(number):
    data = (HERE / f"checkpoint-{number}" / "shop.checkpoint").read_bytes()
    state = Checkpoint.from_bytes(data).state
    place = data.index(state) + len(state) - 1
    with pytest.raises(CorruptError, match="sha256 of the tensors"):
        Checkpoint.from_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write checkpoints from now on as a newer release would."""
    monkeypatch.setattr("omdml.snapshot.CHECKPOINT", Format("checkpoint", CHECKPOINT.number + 1))


def test_a_model_saved_by_a_newer_release_waits_untouched(tmp_path, monkeypatch):
    world = worlds.World(tmp_path)
    world.store = DirectoryStore(tmp_path / "state")
    epoch = world.store.claim("shop").epoch
    home = (world.log.topic_id, 0)
    world.store.save(store_samples.checkpoint(5, home=home), epoch)
    with monkeypatch.context() as release:
        newer(release)
        world.store.save(store_samples.checkpoint(9, home=home), epoch)
    before = sorted(path.name for path in tmp_path.rglob("*.checkpoint"))

    world.send(*worlds.events(20), *worlds.events(20, model="user-1"))
    worker = world.worker()
    worlds.run_until_idle(worker, 30)

    (partition,) = worker.partitions.values()
    assert partition.models.loaded.keys() == {"user-1"}
    assert list(partition._waiting.offsets) == ["shop"]
    names = sorted(path.name for path in (tmp_path / "state" / "models" / "shop").rglob("*.checkpoint"))
    assert names == before
    with pytest.raises(FormatError, match="written by a newer omdml"):
        world.store.peek("shop")


def test_a_folder_from_before_there_was_a_number_counts_as_the_first(tmp_path):
    DirectoryStore(tmp_path).make()
    (tmp_path / "format").unlink()
    DirectoryStore(tmp_path).make()
    assert (tmp_path / "format").read_text() == f"{formats.FOLDER_STORE.number}\n"


@pytest.mark.parametrize("content", ["", "two", "1" * 5000, "-1"])
def test_a_damaged_number_of_a_folder_is_refused(tmp_path, content):
    (tmp_path / "format").write_text(content)
    with pytest.raises(OmdmlError, match=re.escape(str(tmp_path / "format"))):
        DirectoryStore(tmp_path)


def test_a_running_worker_notices_that_its_folder_was_upgraded(tmp_path):
    store = DirectoryStore(tmp_path)
    (tmp_path / "format").write_text(f"{formats.FOLDER_STORE.number + 1}\n")
    with pytest.raises(StoreError, match="written by a newer omdml"):
        store.claim("shop")


def test_what_a_letter_says_in_a_later_key_is_not_lost_silently():
    line = msgspec.json.encode({"format": formats.LETTER.number + 1, "resent_at": [["t", 0], 4]})
    with pytest.raises(FormatError, match=r"t/0/4: dead letter: written by a newer omdml"):
        read_book([Record(Partition("t", 0), 4, line)])


def test_a_newer_checkpoint_of_a_model_that_is_not_configured_ends_no_worker(tmp_path, monkeypatch):
    world = worlds.World(tmp_path, models={"shop": {"learner": "lomdml", "rank": 3}})
    with monkeypatch.context() as release:
        newer(release)
        world.store.save(store_samples.checkpoint(0, model="user-1"), world.store.claim("user-1").epoch)
    world.send(*worlds.events(5, model="user-1"), *worlds.events(20))
    worlds.run_until_idle(world.worker())
    assert world.store.peek("shop").version == 20
    assert [letter.reason for letter in worlds.letters(world)] == ["unknown_model"] * 5


def test_a_reset_does_not_throw_away_what_a_newer_release_learned(tmp_path, monkeypatch):
    world = worlds.World(tmp_path)
    epoch = world.store.claim("shop").epoch
    with monkeypatch.context() as release:
        newer(release)
        world.store.save(store_samples.checkpoint(9), epoch)
    spec = Specs(world.configuration, {"items": world.catalogue}).find("shop")
    with pytest.raises(FormatError, match="written by a newer omdml"):
        models.reset(world.store, spec, "shop", "test")
    assert world.store.models() == ["shop"]
