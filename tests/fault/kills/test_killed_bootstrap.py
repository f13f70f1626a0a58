"""``omdml bootstrap`` killed around the adoption: the model has begun whole, or not at all."""

from __future__ import annotations

import shutil
import signal

import pytest
from click.testing import CliRunner

from omdml.streams.files.ungrouped import UngroupedFileSource
from omdml.streams.letters import read_letters
from omdml.workers.cli import main
from omdml.workers.operate.replay import read_whole
from tests.fault.kills.killed_at import BOOTSTRAP_STEPS
from tests.support.deep import deep_after
from tests.support.files.replays import LoggedShop
from tests.support.forks import ForkedProcess
from tests.support.pauses import _no_waiting  # noqa: F401
from tests.support.worlds import events

MODEL = {"shop": {"learner": "dca", "coordinates": "features"}}
UNKNOWN = b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"zebra"}'
ADOPTED = ("written", "saved", "published")
# The first three by default: before the adoption, in it and after it.
ORDER = ["buried", "written", "saved", *sorted(BOOTSTRAP_STEPS.keys() - {"buried", "written", "saved"})]


def begun(shop, expected=0):
    command = ["bootstrap", "-c", str(shop.file), "--model", "shop", "--input", str(shop.folder / "archive"),
               "--processes", "1"]  # fmt: skip
    done = CliRunner().invoke(main, command)
    assert done.exit_code == expected, done.output
    return done.output


def outcome(shop):
    """What a worker makes of the rest, and what was refused up to there."""
    shop.tell(*events(40, seed=9))
    source = UngroupedFileSource(shop.folder / "letters")
    letters = read_letters(record for records in read_whole(source) for record in records)
    checkpoint = shop.worked()
    tally = checkpoint.progress["tally"]
    counts = [checkpoint.progress["hold_out"]["count"], *(tally[name] for name in ("learned", "held", "repeated"))]
    return checkpoint.state, checkpoint.next, counts, {(letter.offset, letter.reason) for letter in letters}


@pytest.mark.parametrize("step", deep_after(3, ORDER))
def test_a_bootstrap_that_is_killed_begins_the_model_whole_or_not_at_all(tmp_path, step):
    shop = LoggedShop(tmp_path, MODEL, guard="true")
    shop.tell(*events(300), UNKNOWN, *events(100, seed=1))
    archived = CliRunner().invoke(main, ["archive", "-c", str(shop.file), "--to", str(tmp_path / "archive")])
    assert "401 records archived" in archived.output
    shop.tell(*events(50, seed=2))
    # Given the same shop, in which nothing is killed
    state, log, letters = (tmp_path / name for name in ("state", "feedback", "letters"))
    for folder in (state, log):
        shutil.copytree(folder, tmp_path / "before" / folder.name)
    begun(shop)
    expected = outcome(shop)
    for folder in (state, log, letters):
        shutil.rmtree(folder)
    for folder in (state, log):
        shutil.copytree(tmp_path / "before" / folder.name, folder)
    # If the bootstrap is killed, and called again
    killed = ForkedProcess(
        tmp_path, step, "1", "bootstrap", "-c", str(shop.file), "--model", "shop", "--input", str(tmp_path / "archive"),
        "--processes", "1", module="tests.fault.kills.killed_at",
    )  # fmt: skip
    assert killed.wait(240) == -signal.SIGKILL
    killed.close()
    assert (shop.store.peek("shop") is not None) == (step in ADOPTED)
    if step in ADOPTED:
        assert "has a checkpoint already, at version" in begun(shop, expected=1)
    else:
        begun(shop)
    # I expect what came of the one that was not killed
    assert outcome(shop) == expected
