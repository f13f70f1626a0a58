"""``omdml forget`` killed between its steps: the model is always there, and calling it again finishes what it began."""

from __future__ import annotations

import json
import signal

import pytest
from click.testing import CliRunner

from omdml.streams.files.ungrouped import UngroupedFileSource
from omdml.streams.letters import read_letters
from omdml.workers.cli import main
from omdml.workers.operate.replay import read_whole
from tests.fault.kills.killed_at import REPLACE_STEPS
from tests.support.deep import deep_after
from tests.support.files.replays import LoggedShop
from tests.support.forks import ForkedProcess
from tests.support.pauses import _no_waiting  # noqa: F401
from tests.support.worlds import events

MODEL = {"shop": {"learner": "lomdml", "rank": 2}}
UNKNOWN = b'{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"zebra"}'
USERS = ("anna", "ben", "carl")
# The first two by default: before the step that counts, and in the midst of what comes after it.
ORDER = ["live", "history dropped", *sorted(REPLACE_STEPS.keys() - {"live", "history dropped"})]


def clicks(count, seed=0):
    """Events of three users in turn."""
    return [
        json.dumps({**json.loads(event), "user": USERS[number % 3]}).encode()
        for number, event in enumerate(events(count, seed=seed))
    ]


def shop_with_a_past(folder):
    """A model that has learned, with an event refused and an older version pinned."""
    shop = LoggedShop(folder, MODEL)
    shop.tell(*clicks(120), UNKNOWN)
    shop.worked()
    shop.tell(*clicks(60, seed=1))
    shop.worked()
    versions = [line["version"] for line in shop.store.history("shop") if line["what"] == "published"]
    shop.store.move("shop", versions[0], pin=True)
    return shop


def forget(shop, killed_at=None):
    """The exit code of the command, which has a process of its own if it is killed."""
    words = "forget", "shop", "--user", "ben", "--yes", "-c", str(shop.file)
    if killed_at is None:
        return CliRunner().invoke(main, words).exit_code
    return ForkedProcess(shop.folder, killed_at, "1", *words, module="tests.fault.kills.killed_at").wait(120)


def state_in_store(shop):
    """What the store has of the model, and how many letters there are of it."""
    checkpoint, live = shop.store.peek("shop"), shop.store.current("shop")
    files = sorted(path.name for path in (shop.folder / "state" / "models" / "shop").rglob("*.safetensors"))
    letters = list(
        read_letters(record for part in read_whole(UngroupedFileSource(shop.folder / "letters")) for record in part)
    )
    counts = [checkpoint.progress["tally"][name] for name in ("since", "until", "learned", "held", "repeated", "anew")]
    return checkpoint.state, checkpoint.next, counts, (live.version, live.pinned), files, len(letters)


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory):
    """The result of the command when it is not killed."""
    shop = shop_with_a_past(tmp_path_factory.mktemp("whole"))
    assert forget(shop) == 0
    return state_in_store(shop)


@pytest.mark.parametrize("step", deep_after(2, ORDER))
def test_forgetting_that_is_killed_is_finished_by_calling_it_again(tmp_path, never_killed, step):
    # If it is killed, and called again
    shop = shop_with_a_past(tmp_path)
    assert forget(shop, step) == -signal.SIGKILL
    assert shop.store.peek("shop") is not None
    assert forget(shop) == 0
    # I expect the same as without the kill, and nothing of the model's past
    assert state_in_store(shop) == never_killed
    assert len(list((shop.folder / "state" / "models" / "shop").rglob("*.checkpoint"))) == 1


@pytest.mark.parametrize("step", deep_after(2, ORDER))
def test_after_a_kill_the_model_has_all_of_the_users_clicks_or_none(tmp_path, step):
    shop = shop_with_a_past(tmp_path)
    assert forget(shop, step) == -signal.SIGKILL
    shop.tell(*clicks(30, seed=2))
    # Of 180 events 60 are left out.
    forgotten = step in ("replaced", "history dropped", "snapshots dropped", "all dropped")
    assert shop.worked().version == (150 if forgotten else 210)
