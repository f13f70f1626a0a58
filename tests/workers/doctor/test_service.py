"""What the doctor sees of a service that runs: letters, reading, checkpoints, what nodes can serve."""

from __future__ import annotations

import json
import shutil
import time

import msgspec
import pytest
from click.testing import CliRunner

from omdml.snapshot import Snapshot
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.files.group_state import GroupState
from omdml.streams.files.log import OFFSET_BITS
from omdml.streams.files.newest import newest_records
from omdml.streams.files.reader import open_log
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.letters import Resent, read_book
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.doctor.checks import installation, serving
from omdml.workers.doctor.checks.letters import FRESH_S, unsent
from omdml.workers.doctor.findings import Level
from omdml.workers.operate import models
from tests.support.worlds import ITEMS, World, events, items, letters, run_until_idle

UNKNOWN = b'{"type":"triplet","model":"shop","query":"i1","relevant":"i2","irrelevant":"nobody"}'


class Installation(World):
    """A log in files, a store in a folder, and a worker that comes and goes."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.folder, self.store = folder, DirectoryStore(folder / "state")
        self.sink = FileSink(folder / "feedback", fsync=False)
        self.table = {
            "log": {"path": str(folder / "feedback"), "letters": str(folder / "letters")},
            "store": {"url": f"dir:{folder}/state"},
            "catalogues": {"items": {"path": str(folder / "items")}},
            "models": {"shop": {"learner": "lomdml", "rank": 3}, "user-*": {"learner": "lomdml", "rank": 2}},
            "guard": {"on": False},
        }
        self.file = folder / "omdml.toml"
        self.file.write_text(
            f'[log]\npath = "{folder}/feedback"\nletters = "{folder}/letters"\n[store]\nurl = "dir:{folder}/state"\n'
            f'[catalogues.items]\npath = "{folder}/items"\n'
            '[models.shop]\nlearner = "lomdml"\nrank = 3\n[models."user-*"]\nlearner = "lomdml"\nrank = 2\n'
        )

    def tell(self, *payloads) -> None:
        """Put events into the log."""
        for payload in payloads:
            self.sink.send(payload, "shop")
        self.sink.flush()

    def living(self):
        """A worker that holds the log."""
        worker = self.worker(source=FileSource(self.folder / "feedback"))
        run_until_idle(worker)
        return worker

    def learn(self, count=60, seed=0, model="shop") -> None:
        """Have a worker learn events, save, and end; its letters are put into their folder."""
        self.tell(*events(count, seed, model))
        worker = self.living()
        worker.stop()
        worker.run()
        sink = FileSink(self.folder / "letters", fsync=False)
        for letter in letters(self):
            sink.send(letter.encode(), letter.model)
        sink.close()

    def found(self):
        """Findings by check; the worst of a check with several."""
        levels = list(Level)
        every = sorted(
            installation.examine(load(None, {}, self.table)), key=lambda finding: levels.index(finding.level)
        )
        return {finding.check: finding for finding in every}

    def omdml(self, *arguments):
        """What a command prints, without the frames of tables."""
        printed = CliRunner().invoke(main, [*arguments, "-c", str(self.file)])
        assert printed.exit_code == 0, printed.output
        return " ".join(printed.output.replace("│", " ").split())


@pytest.fixture
def shop(tmp_path):
    return Installation(tmp_path)


def problem(shop, check, level):
    """The text of a finding of this level."""
    finding = shop.found()[check]
    assert finding.level is level, finding
    return finding.text


# Letters


def test_letters_that_were_not_sent_again_are_counted_by_reason_with_the_newest(shop):
    shop.tell(UNKNOWN, b"{broken", UNKNOWN)
    shop.learn()
    text = problem(shop, "letters", Level.WARNING)
    assert "3 events (2 unknown_item, 1 not_json) could not be learned" in text
    assert "nobody sent them again or dismissed them" in text
    newest = max(offset for offset in (letter["offset"] for letter in shop_letters(shop)))
    assert f"omdml letters explain 0/{newest}" in text
    assert "omdml letters list --open" in text
    assert "omdml letters resend" in text


def shop_letters(shop):
    """The letters as they lie in their files."""
    return [json.loads(record.value) for record in newest_records(shop.folder / "letters", 1 << 20).records]


def test_letters_that_were_sent_again_are_none(shop):
    shop.tell(UNKNOWN)
    shop.learn()
    (letter,) = shop_letters(shop)
    mark = Resent(((letter["partition"][0], letter["partition"][1]), letter["offset"])).encode()
    sink = FileSink(shop.folder / "letters")
    sink.send(mark, "shop")
    sink.close()
    assert problem(shop, "letters", Level.OK) == "no dead letter is open"


def test_a_letter_that_nobody_can_mend_is_dismissed_and_no_longer_counted(shop):
    shop.tell(b"{broken", UNKNOWN)
    shop.learn()
    printed = CliRunner().invoke(main, ["letters", "dismiss", "-c", str(shop.file)])
    assert (printed.exit_code, "which letters?" in printed.output) == (2, True)
    assert shop.omdml("letters", "dismiss", "--reason", "not_json") == "1 letter dismissed, 1 still open"
    assert "1 event (1 unknown_item) could not be learned" in problem(shop, "letters", Level.WARNING)
    listed = shop.omdml("letters", "list")
    assert "not_json dismissed {broken" in listed
    assert "1 still open" in listed
    assert "not_json" not in shop.omdml("letters", "list", "--open")
    (name,) = (f"0/{letter['offset']}" for letter in shop_letters(shop) if letter.get("reason") == "unknown_item")
    assert shop.omdml("letters", "dismiss", name) == "1 letter dismissed, 0 still open"
    assert problem(shop, "letters", Level.OK) == "no dead letter is open"
    assert "everything adds up" in shop.omdml("doctor", "--audit")


def test_letters_that_could_not_be_read_in_time_are_not_taken_for_none():
    nothing = read_book([])
    assert unsent(nothing, True, 0.0) == "no dead letters"
    assert str(unsent(nothing, False, 0.0)).startswith("not known")


def test_an_empty_list_says_whether_there_are_other_letters(shop):
    shop.tell(UNKNOWN, b"{broken")
    shop.learn()
    listed = shop.omdml("letters", "list", "--model", "nobody", "--open")
    assert "no open dead letter for the model 'nobody', of 2 dead letters in all" in listed


def test_letters_of_a_log_in_files_are_listed_in_the_order_of_their_events(shop):
    shop.tell(UNKNOWN, b"{first", UNKNOWN, b"{last")
    shop.learn()
    listed = shop.omdml("letters", "list")
    assert listed.index("{first") < listed.index("{last")
    positions = [int(word[2:]) for word in listed.split() if word.startswith("0/")]
    assert positions == sorted(positions)


def test_letters_older_than_a_week_are_reported_and_are_no_warning(shop):
    shop.tell(UNKNOWN)
    shop.learn()
    book = read_book(newest_records(shop.folder / "letters", 1 << 20).records)
    assert not isinstance(unsent(book, True, time.time()), str)
    assert "1 event (1 unknown_item) neither sent again nor dismissed; the newest is of 20" in unsent(
        book, True, time.time() + FRESH_S + 60
    )


def test_of_many_letters_only_the_newest_are_read_and_that_is_reported(tmp_path):
    sink = FileSink(tmp_path / "letters", segment_bytes=4000, fsync=False)
    for number in range(200):
        sink.send(b"%0100d" % number)
    sink.close()
    records, whole = newest_records(tmp_path / "letters", 10_000)
    assert not whole
    assert [int(record.value) for record in records] == list(range(200 - len(records), 200))
    assert 5_000 < sum(len(record.value) for record in records) <= 10_000
    assert newest_records(tmp_path / "letters", 1 << 20) == (
        newest_records(tmp_path / "letters", 1 << 20).records,
        True,
    )
    assert newest_records(tmp_path / "nothing", 10) == ([], True)


# Reading


def test_events_in_a_file_log_that_no_worker_takes_are_an_error(shop):
    shop.learn()
    assert "no worker reads it now" in problem(shop, "reading", Level.OK)
    shop.tell(*events(7, seed=1))
    text = problem(shop, "reading", Level.ERROR)
    assert "no worker is running (group 'omdml'), and 7 events" in text
    assert "omdml worker" in text


def test_a_worker_that_takes_nothing_is_a_warning_after_a_minute(shop, monkeypatch):
    worker = shop.living()
    shop.tell(*events(7))
    assert "7 events not yet saved" in problem(shop, "reading", Level.OK)
    now = time.time()
    monkeypatch.setattr(installation.time, "time", lambda: now + 300)
    text = problem(shop, "reading", Level.WARNING)
    assert "holds the log, but 7 events" in text
    assert "(5 min ago)" in text
    run_until_idle(worker)
    assert "everything" in problem(shop, "reading", Level.OK)


def test_a_store_that_lost_what_was_read_is_an_error_while_a_worker_waits_for_it(shop):
    worker = shop.living()
    shop.tell(*events(7))
    run_until_idle(worker)
    state = shop.folder / "state"
    away = state.rename(state.with_name("away"))
    assert "was read before, but the store knows nothing of it" in problem(shop, "reading", Level.ERROR)
    away.rename(state)
    assert "everything" in problem(shop, "reading", Level.OK)


def test_a_look_at_who_reads_keeps_no_worker_from_starting(tmp_path):
    state = GroupState(open_log(tmp_path / "feedback"), "omdml")
    assert state.reader() == ""
    state.lock()
    assert int(state.reader())
    state.unlock()
    assert state.reader() == ""


# Checkpoints


def damage(shop, model="shop", newest_only=False):
    """Cut the end off checkpoints in the folder."""
    files = sorted(shop.folder.glob(f"state/models/{model}/**/*.checkpoint"), key=lambda path: path.stat().st_mtime_ns)
    assert files
    for path in files[-1:] if newest_only else files:
        path.write_bytes(path.read_bytes()[:-9])


def test_a_model_whose_checkpoints_are_all_damaged_waits_and_is_an_error(shop):
    shop.learn(model="user-1")
    shop.learn()
    damage(shop)
    text = problem(shop, "checkpoints", Level.ERROR)
    assert "model shop waits: no checkpoint of it can be read" in text
    assert "omdml replay --model shop --publish --replace" in text
    assert "user-1" not in text
    assert "waits: no checkpoint can be read" in shop.omdml("models", "list")


def test_a_damaged_newest_checkpoint_with_a_sound_one_before_it_is_a_warning(shop):
    shop.learn()
    shop.learn(seed=1)
    assert problem(shop, "checkpoints", Level.OK) == "1 model can be resumed with this configuration"
    damage(shop, newest_only=True)
    text = problem(shop, "checkpoints", Level.WARNING)
    assert "model shop: its newest checkpoint is damaged" in text


def test_a_checkpoint_that_lies_beyond_the_logs_end_is_an_error(shop):
    shop.learn()
    (segment,) = (shop.folder / "feedback").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:10]))
    text = problem(shop, "checkpoints", Level.ERROR)
    end = (1 << OFFSET_BITS) + len(b"".join(lines[:10]))
    assert f"but the log ends at {end:,}" in text
    assert "omdml replay --model shop --publish --replace" in text


def test_models_of_another_log_are_an_error(shop):
    shop.learn()
    shop.table["log"]["path"] = str(shop.folder / "another")
    text = problem(shop, "checkpoints", Level.ERROR)
    assert "learned from log" in text
    assert "--accept-gap" in text


def test_many_models_with_one_problem_are_one_finding(shop):
    for number in range(8):
        shop.learn(3, seed=number, model=f"user-{number}")
        damage(shop, f"user-{number}")
    text = problem(shop, "checkpoints", Level.ERROR)
    assert "model user-0 waits" in text
    assert "Likewise: user-1, user-2, user-3, user-4, user-5 and 2 more" in text


# What nodes can serve


def test_a_live_version_of_another_catalogue_generation_is_an_error(shop):
    shop.learn()
    assert "nodes can load what is live of 1 model" in problem(shop, "serving", Level.OK)
    features = {name: x[: ITEMS - 1] for name, x in items()[0].items()}
    build_catalogue(shop.folder / "items", features, ids=[f"i{row}" for row in range(ITEMS - 1)], replace=True)
    text = problem(shop, "serving", Level.ERROR)
    assert "no node can load it: learned on catalogue generation" in text
    assert "restart the workers" in text.lower()
    result = shop.omdml("history", "shop")
    assert "can nodes load it: no: learned on catalogue generation" in result


def test_a_catalogue_of_other_dimensions_is_one_way_out_for_all_who_tell(shop):
    # Given a model, and then a catalogue with one modality less
    shop.learn()
    name, features = next(iter(items()[0].items()))
    ids = [f"i{row}" for row in range(ITEMS)]
    build_catalogue(shop.folder / "items", {name: features}, ids=ids, replace=True)
    # I expect the doctor's findings and the refusal of a worker to name the command that works.
    command = "omdml replay --model shop --publish --replace"
    for check in ("serving", "checkpoints"):
        text = problem(shop, check, Level.ERROR)
        assert command in text
        assert "models reset" not in text
    refusal = CliRunner().invoke(main, ["worker", "-c", str(shop.file)])
    assert command in refusal.output
    assert "models reset" not in refusal.output
    shop.omdml(*command.split()[1:])
    problem(shop, "serving", Level.OK)
    problem(shop, "checkpoints", Level.OK)


def test_a_rollback_goes_only_where_the_doctor_finds_that_nodes_can_load_it(shop):
    # Given versions of a catalogue that was then built anew, while workers go on with what they have
    shop.learn()
    shop.learn(seed=1)
    features = {name: x[: ITEMS - 1] for name, x in items()[0].items()}
    build_catalogue(shop.folder / "items", features, ids=[f"i{row}" for row in range(ITEMS - 1)], replace=True)
    live = shop.store.current("shop")
    older = min(line["version"] for line in shop.store.history("shop"))
    for command in (("rollback", "shop"), ("rollback", "shop", "--version", str(older)), ("pin", "shop")):
        result = CliRunner().invoke(main, [*command, "--config", str(shop.file)])
        text = " ".join(f"{result.output} {result.exception}".split())
        assert "that nodes could serve" in text or "no node could serve it" in text, text
    assert shop.store.current("shop") == live
    # If the catalogue cannot be read here, that is said, and a rollback is not kept from helping.
    shutil.rmtree(shop.folder / "items")
    assert "cannot check here" in shop.omdml("rollback", "shop", "--version", str(older))
    assert shop.store.current("shop").version == older


def test_a_damaged_live_snapshot_is_an_error_and_a_sound_older_one_is_named(shop):
    shop.learn()
    shop.learn(seed=1)
    live = shop.store.current("shop")
    (path,) = shop.folder.glob(f"state/models/shop/**/*{live.digest}*")
    path.write_bytes(path.read_bytes()[:-9])
    text = problem(shop, "serving", Level.ERROR)
    assert f"model shop: version {live.version} is live but no node can load it: its bytes are damaged" in text
    assert "omdml history shop" in text
    result = shop.omdml("history", "shop")
    assert "no: its bytes are damaged" in result
    assert "published 60 2 yes" in result


def test_a_pin_to_what_a_reset_was_to_forget_is_a_warning_until_it_is_unpinned(shop):
    shop.learn()
    models.reset(shop.store, Specs(shop.configuration, {"items": shop.catalogue}).find("shop"), "shop", "test")
    assert problem(shop, "serving", Level.OK)
    shop.store.move("shop", 60, pin=True)
    text = problem(shop, "serving", Level.WARNING)
    assert "version 60 is live, pinned there since" in text
    assert "was learned before the reset of" in text
    assert "omdml unpin shop" in text
    assert "learned before the reset" in shop.omdml("models", "list")
    shop.store.move("shop", 0, pin=False)
    assert problem(shop, "serving", Level.OK)


def candidate(shop, version):
    """A snapshot that may be held."""
    return msgspec.structs.replace(shop.store.load("shop")[1], version=version)


def test_a_withheld_snapshot_is_explained_and_an_error_after_an_hour(shop, monkeypatch):
    shop.learn()
    epoch = shop.store.claim("shop").epoch
    for version in (70, 80):
        assert isinstance(candidate(shop, version), Snapshot)
        shop.store.publish(candidate(shop, version), epoch, held="not as good on 256 events held back")
    text = problem(shop, "serving", Level.WARNING)
    assert "model shop: newer versions are withheld since" in text
    assert "nodes stay at version 60" in text
    assert "not as good on 256 events held back" in text
    assert "newer versions withheld for" in shop.omdml("models", "list")
    now = time.time()
    monkeypatch.setattr(installation.time, "time", lambda: now + serving.LONG_WITHHELD_S + 60)
    assert "(1 h)" in problem(shop, "serving", Level.ERROR)
    monkeypatch.undo()
    shop.store.publish(candidate(shop, 90), epoch)
    assert problem(shop, "serving", Level.OK)


def test_what_a_pin_keeps_back_is_not_withheld_and_an_old_pin_is_a_warning(shop, monkeypatch):
    shop.learn()
    shop.store.move("shop", 60, pin=True)
    shop.store.publish(candidate(shop, 70), shop.store.claim("shop").epoch)
    assert "1 pinned" in problem(shop, "serving", Level.OK)
    now = time.time()
    monkeypatch.setattr(installation.time, "time", lambda: now + 3 * 86_400)
    text = problem(shop, "serving", Level.WARNING)
    assert "pinned at version 60 since" in text
    assert "(3 d ago)" in text


def test_drift_of_the_last_day_is_a_warning(shop, monkeypatch):
    shop.learn()
    shop.store.note("shop", shop.store.claim("shop").epoch, "drift", "mistakes went from 5% to 20%")
    text = problem(shop, "serving", Level.WARNING)
    assert "model shop: drift at" in text
    assert "mistakes went from 5% to 20%" in text
    now = time.time()
    monkeypatch.setattr(installation.time, "time", lambda: now + 2 * 86_400)
    assert problem(shop, "serving", Level.OK)


@pytest.mark.parametrize(("options", "exit_code"), [((), 0), (("--strict",), 1)])
def test_warnings_end_the_command_with_1_only_if_it_is_strict(shop, options, exit_code):
    shop.tell(UNKNOWN)
    shop.learn()
    done = CliRunner().invoke(main, ["doctor", "-c", str(shop.file), *options])
    assert done.exit_code == exit_code
    assert "warning" in done.output


def test_an_error_ends_the_command_with_1(shop):
    shop.tell(*events(3))
    assert CliRunner().invoke(main, ["doctor", "-c", str(shop.file)]).exit_code == 1
