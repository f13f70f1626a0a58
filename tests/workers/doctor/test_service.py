"""What the doctor sees of a service that runs: who reads, whether checkpoints can be resumed, and the exit code."""

from __future__ import annotations

import shutil
import time

import pytest
from click.testing import CliRunner

from omdml.streams.files.group_state import GroupState
from omdml.streams.files.log import OFFSET_BITS
from omdml.streams.files.reader import open_log
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.cli import main
from omdml.workers.doctor.checks import installation
from omdml.workers.doctor.findings import Level
from tests.support.installations import UNKNOWN, problem
from tests.support.worlds import events, run_until_idle

# Reading


def test_events_in_a_file_log_that_no_worker_takes_are_an_error(shop):
    shop.learn()
    assert "no worker is running (group 'omdml'). Everything in" in problem(shop, "reading", Level.WARNING)
    shop.tell(*events(7, seed=1))
    text = problem(shop, "reading", Level.ERROR)
    assert "no worker is running (group 'omdml'), and 7 events" in text
    assert "omdml worker" in text


def test_a_worker_that_takes_nothing_is_a_warning_after_a_minute(shop, monkeypatch):
    worker = shop.living()
    shop.tell(*events(7))
    assert "7 events are not yet saved" in problem(shop, "reading", Level.OK)
    now = time.time()
    monkeypatch.setattr(installation.time, "time", lambda: now + 300)
    text = problem(shop, "reading", Level.WARNING)
    assert "holds the log, but 7 events" in text
    assert "(5 min ago)" in text
    run_until_idle(worker)
    assert "everything" in problem(shop, "reading", Level.OK)


def test_a_store_that_lost_what_was_read_is_an_error_if_a_worker_waits(shop):
    worker = shop.living()
    shop.tell(*events(7))
    run_until_idle(worker)
    state = shop.folder / "state"
    away = state.rename(state.with_name("away"))
    text = problem(shop, "store", Level.ERROR)
    assert "state is not there, but group 'omdml' has read this log before" in text
    assert "correct store.url" in text
    # A worker that starts now makes the folder, and then waits.
    DirectoryStore(state).secret()
    assert "was read before, but the store knows nothing of it" in problem(shop, "reading", Level.ERROR)
    shutil.rmtree(state)
    away.rename(state)
    assert "everything" in problem(shop, "reading", Level.OK)


def test_dead_letters_reveal_a_store_that_is_gone_if_the_group_is_a_new_one(shop):
    shop.tell(UNKNOWN)
    shop.learn(7)
    shutil.rmtree(shop.folder / "state")
    shop.table["log"]["group"] = "new"
    text = problem(shop, "store", Level.ERROR)
    assert "state is not there, but workers have read this log before: they left 1 dead letter" in text
    assert "learns the whole log again, into a new store" in text


def test_a_group_that_is_not_the_one_of_the_workers_is_an_error(shop):
    shop.learn(7)
    # A worker that the command line starts records its group.
    shop.store.note_group(open_log(shop.folder / "feedback").topic_id, "omdml")
    assert "no worker is running" in problem(shop, "reading", Level.WARNING)
    shop.table["log"]["group"] = "mistyped"
    text = problem(shop, "reading", Level.ERROR)
    assert "says that group 'omdml' reads this log" in text
    assert "set log.group to 'omdml'" in text


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
