"""``omdml forget`` and ``omdml learn-on``: a model as if some events had never been."""

from __future__ import annotations

import hashlib
import json

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from omdml.feedback import decode
from omdml.learners import Learner
from omdml.streams.files.source import FileSource
from omdml.workers.cli import main
from omdml.workers.commands import replay_output
from tests.support.files.replays import LoggedShop
from tests.support.worlds import events, run_until_idle

USERS = ("anna", "ben", "carl")


def of(user, event, at=None):
    """The event as one of this user, with a time if one is given."""
    more = {"user": user} | ({"at": at} if at else {})
    return json.dumps({**json.loads(event), **more}).encode()


def clicks(count, seed=0):
    """Events of several users in turn."""
    return [of(USERS[n % 3], event, 1_700_000_000 + n) for n, event in enumerate(events(count, seed=seed))]


def of_another_model(event):
    """This event as one of another model and of no user, with as many bytes, so that all others keep their offsets."""
    fields = json.loads(event)
    fields |= {"model": "user-1", "query": "i1"}
    del fields["user"]
    other = json.dumps(fields).encode()
    return other[:-1] + b" " * (len(event) - len(other)) + b"}"


def omdml(shop, *words):
    return CliRunner().invoke(main, [*words, "-c", str(shop.file), "--yes"])


def digest_printed(ran):
    """The digest of the learner's state that a command prints."""
    assert ran.exit_code == 0, ran.output
    return "".join(ran.output.split()).rpartition("sha256ofwhatwaslearned:")[2][:64]


@pytest.mark.parametrize("guard", ["false", "true"])
def test_what_is_learned_without_a_user_is_what_a_log_without_them_teaches(tmp_path, guard):
    events = clicks(300)
    shop, twin = LoggedShop(tmp_path / "a", guard=guard), LoggedShop(tmp_path / "b", guard=guard)
    for each in (shop, twin):
        on = msgspec.structs.replace(each.configuration.guard, on=guard == "true")
        each.configuration = msgspec.structs.replace(each.configuration, guard=on)
    shop.tell(*events)
    before = shop.worked()
    ran = omdml(shop, "forget", "shop", "--user", "ben", "--user", "nobody")
    text = " ".join(ran.output.split())
    assert "start the workers" in text
    assert "Left out: 100 events, which the log still holds;" in text
    twin.tell(*(of_another_model(event) if decode(event).user == "ben" else event for event in events))
    expected = twin.worked()
    after = shop.store.claim("shop").checkpoint
    assert after.state == expected.state != before.state
    for name in ("count", "kept"):
        assert after.progress["hold_out"][name] == expected.progress["hold_out"][name]
    assert digest_printed(ran) == hashlib.sha256(expected.state).hexdigest()
    assert after.next == before.next


def test_a_user_without_events_is_an_error_and_changes_nothing(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(30))
    before = shop.worked()
    epoch = shop.store.owner("shop")
    for command in (("forget", "shop", "--user", "nobody"), ("learn-on", "shop", "--without-user", "nobody")):
        ran = omdml(shop, *command)
        assert ran.exit_code == 1
        assert "no event of 'nobody' is in the log. Nothing was changed" in " ".join(ran.output.split())
    assert (shop.store.peek("shop").state, shop.store.owner("shop")) == (before.state, epoch)


def test_a_time_without_events_is_an_error_and_changes_nothing(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(30))
    before = shop.worked()
    epoch = shop.store.owner("shop")
    for times in (
        ["--since", "2123-01-01"],
        ["--until", "1923-01-01"],
        ["--since", "2123-01-01", "--without-user", "x"],
    ):
        ran = omdml(shop, "learn-on", "shop", *times)
        assert ran.exit_code == 1
        assert "from that time (UTC) is in the log. Nothing was changed" in " ".join(ran.output.split())
    assert (shop.store.peek("shop").state, shop.store.owner("shop")) == (before.state, epoch)
    assert omdml(shop, "learn-on", "shop", "--since", "2123-01-01", "--accept-gap").exit_code == 0


def test_of_two_who_forget_at_once_the_later_one_is_refused(tmp_path, monkeypatch):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(90))
    shop.worked()
    learn, others = replay_output.learn, []

    def learn_while_another_forgets(models, log):
        if not others:
            others.append(None)
            others[0] = omdml(shop, "forget", "shop", "--user", "anna")
        learn(models, log)

    monkeypatch.setattr(replay_output, "learn", learn_while_another_forgets)
    refused = omdml(shop, "forget", "shop", "--user", "ben")
    assert refused.exit_code == 1
    assert "name also the users whom the others have left out" in " ".join(refused.output.split())
    # The refused command brought nothing of anna's back.
    assert digest_printed(others[0]) == hashlib.sha256(shop.store.peek("shop").state).hexdigest()
    assert omdml(shop, "forget", "shop", "--user", "ben", "--user", "anna").exit_code == 0
    assert shop.store.peek("shop").version == 30


def test_a_worker_goes_on_behind_what_was_left_out_and_an_audit_agrees(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(90))
    shop.worked()
    # The first event of the log is one of hers.
    assert omdml(shop, "forget", "shop", "--user", "anna").exit_code == 0
    shop.tell(*clicks(30, seed=1))
    worked = shop.worked()
    twin = Learner.from_bytes(worked.state)
    assert twin.version == 60 + 30
    ran = CliRunner().invoke(main, ["doctor", "--audit", "-c", str(shop.file)])
    assert "learned twice" not in ran.output
    assert "lost" not in ran.output, ran.output
    (row,) = [line.split("│") for line in ran.output.splitlines() if "│ shop" in line and "120" in line]
    # The columns count events: of the log, learned, held out, passed over, refused.
    assert [int(cell) for cell in row[2:7]] == [120, 90, 0, 30, 0]


def test_a_model_goes_on_from_an_earlier_version(tmp_path):
    shop, twin = LoggedShop(tmp_path / "a"), LoggedShop(tmp_path / "b")
    shop.tell(*clicks(80))
    twin.tell(*clicks(80))
    expected = twin.worked()
    shop.tell(*clicks(50, seed=2))
    later = shop.worked()
    ran = omdml(shop, "learn-on", "shop", "--version", "80")
    assert digest_printed(ran) == hashlib.sha256(expected.state).hexdigest()
    after = shop.store.claim("shop").checkpoint
    assert (after.version, after.next) == (80, later.next)


def test_events_of_a_time_are_left_out(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(60))
    shop.worked()
    # Events 10 to 19, counted from 0.
    times = ["--since", "2023-11-14T22:13:30", "--until", "2023-11-14T22:13:40"]
    assert "Left out: 10 events" in " ".join(omdml(shop, "learn-on", "shop", *times).output.split())
    assert shop.store.claim("shop").checkpoint.version == 50


def test_a_version_that_the_log_does_not_lead_to_changes_nothing(tmp_path):
    shop = LoggedShop(tmp_path)
    ranking = {"type": "ranking", "model": "shop", "query": "i1", "relevant": ["i2", "i3"], "irrelevant": ["i4", "i5"]}
    shop.tell(*clicks(10), json.dumps(ranking).encode(), *clicks(5, seed=3))
    before = shop.worked()
    for version, expected in ((12, "the next one leads to 14"), (500, "the log only leads to version 19")):
        ran = omdml(shop, "learn-on", "shop", "--version", str(version))
        assert ran.exit_code == 1
        assert expected in " ".join(ran.output.split())
    assert shop.store.claim("shop").checkpoint.state == before.state
    assert shop.store.load("shop")[1].version == before.version


def test_children_that_keep_a_copy_of_a_parent_that_forgets_are_named(tmp_path):
    own = {"coordinates": "features", "rank": 4}
    models = {"shop": own, "user-*": {**own, "parent": "shop"}}
    shop = LoggedShop(tmp_path, models)
    shop.tell(*clicks(30))
    shop.worked()
    assert "as parent" not in omdml(shop, "forget", "shop", "--user", "ben").output
    shop.tell(*events(2, model="user-7"), key="user-7")
    shop.worked()
    copied, _ = Learner.from_bytes(shop.store.peek("user-7").state).parent
    text = " ".join(omdml(shop, "forget", "shop", "--user", "ben", "--user", "anna").output.split())
    assert "1 model with it as parent (such as user-7) may keep what it served before" in text
    assert CliRunner().invoke(main, ["models", "delete", "user-7", "--yes", "-c", str(shop.file)]).exit_code == 0
    words = "replay", "--model", "user-7", "--publish", "-c", str(shop.file)
    assert CliRunner().invoke(main, words).exit_code == 0
    renewed, version = Learner.from_bytes(shop.store.peek("user-7").state).parent
    assert version == shop.store.peek("shop").version == 10
    assert any(not np.array_equal(copied.experts[key], rows) for key, rows in renewed.experts.items())


def test_a_version_is_refused_if_its_count_reaches_later_events_today(tmp_path):
    # Given a version of forty events, later ones, and an item of three of the forty that was deleted since
    shop = LoggedShop(tmp_path)
    items = str(tmp_path / "items")
    extra = json.dumps({"id": "extra", "features": {name: [0.5] * dim for name, dim in shop.catalogue.dims.items()}})
    assert CliRunner().invoke(main, ["catalogue", "put", items], input=extra).exit_code == 0
    shop.catalogue.refresh()
    first = clicks(40)
    for n in (3, 9, 27):
        first[n] = json.dumps(json.loads(first[n]) | {"irrelevant": "extra"}).encode()
    shop.tell(*first)
    assert shop.worked().version == 40
    shop.tell(*(json.dumps(json.loads(event) | {"at": 1_700_000_100}).encode() for event in clicks(20, seed=2)))
    before = shop.worked()
    assert CliRunner().invoke(main, ["catalogue", "delete", items, "extra"]).exit_code == 0
    # I expect that the command learns none of the later ones instead, and says when they began.
    ran = omdml(shop, "learn-on", "shop", "--version", "40")
    assert ran.exit_code == 1
    assert "items were deleted since" in " ".join(ran.output.split())
    assert shop.store.claim("shop").checkpoint.state == before.state
    since = "".join(ran.output.split()).rpartition("--since")[2][:19]
    assert since == "2023-11-14T22:14:00"
    ran = omdml(shop, "learn-on", "shop", "--since", since)
    assert "Left out: 20 events" in " ".join(ran.output.split())


def test_a_log_that_lost_what_was_learned_is_not_enough(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(30))
    shop.worked()
    (tmp_path / "feedback").rename(tmp_path / "old")
    fresh = LoggedShop(tmp_path / "c")
    fresh.tell(*clicks(3))
    (tmp_path / "c" / "feedback").rename(tmp_path / "feedback")
    again = "replay", "--model", "shop", "--publish", "--replace", "-c", str(shop.file)
    for ran in (omdml(shop, "forget", "shop", "--user", "ben"), CliRunner().invoke(main, again)):
        output = " ".join(ran.output.split())
        assert ran.exit_code == 1
        assert "the configured log is another one, or was made again" in output
        assert "the rest would be lost" in output
        assert shop.store.claim("shop").checkpoint.version == 30
    accepted = CliRunner().invoke(main, [*again, "--accept-gap"])
    assert "version 3 is live (before: version 30)" in " ".join(accepted.output.split())


def test_what_a_reset_took_away_does_not_come_back_by_forgetting(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(30))
    shop.worked()
    assert CliRunner().invoke(main, ["models", "reset", "shop", "--yes", "-c", str(shop.file)]).exit_code == 0
    shop.tell(*clicks(12, seed=5))
    before = shop.worked()
    assert before.version == 12
    ran = omdml(shop, "forget", "shop", "--user", "ben")
    assert ran.exit_code == 1
    assert "would bring back what came before" in " ".join(ran.output.split())
    assert shop.store.peek("shop").state == before.state
    assert omdml(shop, "forget", "shop", "--user", "ben", "--accept-gap").exit_code == 0
    assert shop.store.peek("shop").version == 20 + 8


def test_a_deleted_model_stays_deleted_if_another_one_forgets_somebody(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(30), *(of_another_model(event) for event in clicks(4, seed=7)))
    shop.worked()
    assert shop.store.models() == ["shop", "user-1"]
    assert CliRunner().invoke(main, ["models", "delete", "user-1", "--yes", "-c", str(shop.file)]).exit_code == 0
    assert omdml(shop, "forget", "shop", "--user", "ben").exit_code == 0
    shop.worked()
    assert shop.store.models() == ["shop"]


def test_nobody_forgets_while_a_worker_learns(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*clicks(30))
    worker = shop.worker(source=FileSource(shop.folder / "feedback"))
    run_until_idle(worker)
    ran = omdml(shop, "forget", "shop", "--user", "ben")
    assert ran.exit_code == 2
    assert "stop the worker first" in " ".join(ran.output.split())
    worker.stop()
    worker.run()
    assert omdml(shop, "forget", "shop", "--user", "ben").exit_code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["learn-on", "shop"], "say what to leave out"),
        (["learn-on", "shop", "--since", "2026-01-02", "--until", "2026-01-01"], "is not before"),
        (["forget", "shop"], "--user"),
    ],
)
def test_a_command_without_a_sound_choice_of_events_is_refused(tmp_path, words, expected):
    shop = LoggedShop(tmp_path)
    ran = omdml(shop, *words)
    assert ran.exit_code == 2
    assert expected in ran.output


@pytest.mark.parametrize("learner", ["dca", "lomdml"])
def test_versions_are_reached_by_steps_of_any_size(tmp_path, learner):
    options = {"learner": learner, "rank": 2} | ({"coordinates": "features"} if learner == "dca" else {})
    shop, twin = (
        LoggedShop(tmp_path / name, models={"shop": options, "user-*": {"learner": "qwise"}}) for name in "ab"
    )
    draw = np.random.default_rng(4)
    version = int(draw.integers(20, 100))
    twin.tell(*clicks(120)[:version])
    shop.tell(*clicks(120))
    expected = twin.worked()
    shop.worked()
    assert (
        digest_printed(omdml(shop, "learn-on", "shop", "--version", str(version)))
        == hashlib.sha256(expected.state).hexdigest()
    )
