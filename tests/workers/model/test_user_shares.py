"""No more than a share of what a model learns may come from one user."""

from __future__ import annotations

import json
from collections import deque

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.errors import ConfigurationError, CorruptError
from omdml.feedback import decode, encode
from omdml.snapshot import Checkpoint
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import sort_out
from omdml.workers.model import user_shares
from omdml.workers.model.judging.guard import Guard
from omdml.workers.model.owned_model import OwnedModel
from omdml.workers.model.progress import Progress
from omdml.workers.model.user_shares import WINDOW, UserShares
from omdml.workers.operate.replay import nothing_timed
from tests.support.deep import examples
from tests.support.files.replays import LoggedShop, replayed
from tests.support.worlds import catalogue, events, letters

HOME = Partition("topic", 0)
EVENTS = st.lists(st.tuples(st.sampled_from([None, *"abc"]), st.integers(1, 6)), max_size=60)


def allowed(sent, share, window):
    """The rule, literally: whether each event is learned, and the users that are remembered in the end."""
    newest, learned = deque(), []
    for user, count in sent:
        if user is None:
            learned.append(True)
            continue
        after = deque([*newest, (user, count)])
        while sum(comparisons for _, comparisons in after) > window:
            after.popleft()
        theirs = sum(comparisons for name, comparisons in after if name == user)
        fits = count <= window and theirs <= max(1, int(share * window))
        learned.append(fits and (user, count) in after)
        if learned[-1]:
            newest = after
    return learned, newest


@settings(max_examples=examples(200), deadline=None)
@given(EVENTS, st.sampled_from([0.01, 0.2, 0.34, 0.5, 0.9]), st.lists(st.integers(0, 60), max_size=4))
def test_the_window_holds_what_the_rule_says_however_events_are_batched(sent, share, cuts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_shares, "WINDOW", 12)
        shares, learned = UserShares(share), []
        ends = sorted({*(cut for cut in cuts if cut < len(sent)), len(sent)})
        for begin, end in zip([0, *ends], ends, strict=False):
            part = sent[begin:end]
            refused = shares.take([user for user, _ in part], np.array([count for _, count in part], np.int64))
            learned += [number not in refused for number in range(len(part))]
            # Another worker goes on with it.
            shares = UserShares(share, shares.to_bytes())
        expected, newest = allowed(sent, share, 12)
        assert learned == expected
        twin = UserShares(share)
        twin.take([user for user, _ in newest], np.array([count for _, count in newest], np.int64))
        assert shares.to_bytes() == twin.to_bytes()


@settings(max_examples=examples(200), deadline=None)
@given(EVENTS, st.sampled_from([0.2, 0.34, 0.5]))
def test_no_user_ever_has_more_than_the_share(sent, share):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(user_shares, "WINDOW", 12)
        shares = UserShares(share)
        for user, count in sent:
            shares.take([user], np.array([count]))
            assert shares.figures["largest_share_of_a_user"] * 12 <= max(1, int(share * 12))


def test_without_a_limit_no_user_is_remembered():
    shares = UserShares(1.0)
    assert not shares.take(["anna"] * 10_000, np.ones(10_000, np.int64))
    assert (shares.to_bytes(), shares.figures, shares.nbytes) == (b"", {}, 0)


@pytest.mark.parametrize("data", [b"123", bytes(10 * (WINDOW + 1))])
def test_damaged_windows_are_refused(data):
    with pytest.raises(CorruptError, match="users of the newest events"):
        UserShares(0.1, data)


@pytest.mark.parametrize("share", [0, -0.1, 1.5, "half", True, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    table = {"catalogues": {"items": {"path": "x"}}, "models": {"shop": {"max_share_a_user": share}}}
    with pytest.raises(ConfigurationError, match=r"models\.shop\.max_share_a_user is .*, expected a share above 0"):
        load(None, {}, table)


@pytest.fixture(scope="module")
def specs(tmp_path_factory):
    items = catalogue(tmp_path_factory.mktemp("items"))
    table = {"catalogues": {"items": {"path": "unused"}}, "guard": {"hold_out": 4}}
    table["models"] = {"shop": {"learner": "lomdml", "rank": 3, "max_share_a_user": 10 / WINDOW}}
    return Specs(load(None, {}, table), {"items": items})


def begun(specs):
    spec = specs.of("shop")
    learner = spec.fresh()
    guard = Guard(spec.guard, learner.metric)
    args = ("shop", learner, spec.catalogue, "epoch", spec.digest, guard, b"s" * 32, spec.max_share_a_user)
    model = OwnedModel(*args)
    model.home = HOME
    return model


def sent_by(user, event):
    return encode(decode(json.dumps({**json.loads(event), "user": user}).encode()))


def take(specs, model, sent, first=0):
    batches, _ = sort_out([Record(HOME, first + n, event) for n, event in enumerate(sent)], specs.accepts)
    return model.take(batches["shop"], nothing_timed)


def test_events_beyond_the_share_are_refused_and_those_of_others_learned(specs):
    model = begun(specs)
    sent = [sent_by("mallory" if n % 3 else f"user {n}", event) for n, event in enumerate(events(60))]
    refused = take(specs, model, sent)
    # Of mallory's 40 events 10 are taken, some of them held out, and of the others all 20.
    assert {refusal.error.reason for refusal in refused} == {"user_share"}
    assert len(refused) == 30
    assert model.learner.version + model.progress.hold_out.count == 30
    assert "at most" not in str(refused[0].error)
    assert "Send it again once others have sent more" in str(refused[0].error)
    figures = model.snapshot().progress
    assert (figures["users"], figures["largest_share_of_a_user"]) == (21, 10 / WINDOW)


def test_a_resumed_model_refuses_what_one_that_was_never_stopped_refuses(specs):
    sent = [sent_by(f"user {n % 4}", event) for n, event in enumerate(events(80))]
    whole, first = begun(specs), begun(specs)
    expected = take(specs, whole, sent)
    refused = take(specs, first, sent[:37])
    later = begun(specs)
    checkpoint = Checkpoint.from_bytes(first.checkpoint("test").to_bytes())
    later.learner = specs.of("shop").resumed(checkpoint)
    later.resume(checkpoint)
    refused += take(specs, later, sent[37:], first=37)
    assert [entry.record.offset for entry in refused] == [entry.record.offset for entry in expected]
    assert len(expected) == 40
    assert later.checkpoint("test").to_bytes() == whole.checkpoint("test").to_bytes()


def test_a_worker_writes_letters_and_a_replay_refuses_the_same(tmp_path):
    shop = LoggedShop(tmp_path, models={"shop": {"learner": "qwise", "max_share_a_user": 10 / WINDOW}})
    shop.tell(*(sent_by("mallory" if n % 2 else f"user {n}", event) for n, event in enumerate(events(60))))
    before = shop.worked()
    assert [letter.reason for letter in letters(shop)] == ["user_share"] * 20
    again = replayed(shop)
    assert again.learner.to_bytes() == before.state
    assert again.users.to_bytes() == msgspec.convert(before.progress, Progress).users != b""
