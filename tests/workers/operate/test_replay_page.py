"""What a replay shows while it reads, and the page that it leaves."""

from __future__ import annotations

import fcntl
import os
import re
from xml.etree import ElementTree

import pytest

from omdml.streams.files.log import OFFSET_BITS
from omdml.streams.files.source import SEGMENT_BYTES
from omdml.streams.protocols.log import Partition
from omdml.streams.topic_extents import Extent
from omdml.workers.commands import replay_output
from omdml.workers.commands.replay_output import in_small_pieces, share_read
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.configuration.loading import load
from omdml.workers.operate.replay import ReplayedModel, replayed_spec
from omdml.workers.operate.replay_page import apart, page
from omdml.workers.wiring.feedback_log import log_extents
from tests.support.files.replays import ALONE, LoggedShop
from tests.support.worlds import events


@pytest.fixture
def guarded(tmp_path):
    """A log of a shop that holds events out."""
    shop = LoggedShop(tmp_path, {"shop": {"learner": "lomdml", "rank": 3}}, guard="true")
    shop.tell(*events(3000))
    return shop


def models_of(shop, learners, log, watched=True):
    models = []
    for learner in learners:
        spec = replayed_spec(shop.specs, "shop", learner)._replace(guard=GuardConfig())
        models.append(ReplayedModel("shop", spec.fresh(), spec, ALONE, b"\7" * 32))
        models[-1].metrics_along = [] if watched else None
    replay_output.learn(models, log)
    return models


def test_the_page_says_what_the_table_says_and_how_it_came_to_that(guarded, tmp_path):
    path = tmp_path / "report.html"
    printed = guarded.omdml("--learner", "lomdml", "--learner", "diagonal", "--html", str(path)).output
    text = path.read_text()
    plain, *ends = re.findall(r"([\d.]+%) rightly|lomdml ([\d.]+%)|diagonal ([\d.]+%)\.", text)
    for share in ("".join(plain), *map("".join, ends)):
        assert share in printed
    assert len(ends) >= 2
    # A point for the start, and one for each stretch.
    points = re.findall(r"lomdml: [\d.]+% after ([\d,]+)", text)
    assert points[0] == "0"
    assert len(points) > 10
    rows = re.findall(r"([\d,]+) +│ +([\d.]+%) +│ +([\d.]+%)", printed)
    assert rows
    assert [cell for row in rows for cell in row if f"<td>{cell}</td>" not in text] == []


def test_the_page_loads_nothing_from_anywhere(guarded, tmp_path):
    path = tmp_path / "report.html"
    guarded.omdml("--html", str(path))
    text = path.read_text()
    assert not re.search(r"<script|<link|<img|<iframe|src=|href=|url\(|@import|https?:", text)
    assert "default-src 'none'" in text
    # It is well formed, but for the tags that HTML never closes.
    ElementTree.fromstring(re.sub(r"<!doctype html>|<meta[^>]*>", "", text))


def test_a_models_name_runs_no_script_in_the_page(guarded):
    text = page("<script>alert(1)</script>\x1b", models_of(guarded, ["lomdml"], guarded.log_read()), 0)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "\x1b" not in text


def test_a_watched_replay_learns_the_same_to_the_byte(guarded):
    (alone,) = models_of(guarded, ["lomdml"], guarded.log_read(), watched=False)
    (watched,) = models_of(guarded, ["lomdml"], in_small_pieces(guarded.log_read()))
    assert watched.learner.to_bytes() == alone.learner.to_bytes()
    assert watched.orders()[2] == watched.orders_along()[-1][1] == alone.orders()[2]
    counts = [count for count, _ in watched.orders_along()]
    assert counts == sorted(set(counts))
    assert 100 <= counts[1] < 125


def test_a_log_without_held_out_events_has_a_page_without_their_curve(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell(*events(300))
    path = tmp_path / "report.html"
    assert shop.omdml("--html", str(path)).exit_code == 0
    assert "Held-out" not in path.read_text()
    assert path.read_text().count("<svg") == 1


def test_an_empty_log_has_a_page_too(tmp_path):
    shop = LoggedShop(tmp_path)
    shop.tell()
    path = tmp_path / "report.html"
    assert shop.omdml("--html", str(path)).exit_code == 0
    assert "<svg" not in path.read_text()


def test_a_page_that_cannot_be_written_is_reported_in_a_sentence(guarded, tmp_path):
    refused = guarded.omdml("--html", str(tmp_path / "nowhere/report.html"))
    assert refused.exit_code == 2
    assert "name a file that can be written" in " ".join(refused.output.split())


@pytest.mark.parametrize("option", ["--html", "--save"])
def test_a_file_of_a_replay_takes_the_place_of_no_link_and_no_device(guarded, tmp_path, option):
    # A device that a file replaces would be gone for all programs of the machine.
    device, link = tmp_path / "device", tmp_path / "link"
    os.mkfifo(device)
    link.symlink_to("target")
    reader = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
    # The pipe has room for the whole file.
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert guarded.omdml(option, str(device)).exit_code == 0
    assert device.is_fifo()
    assert os.read(reader, 10)
    os.close(reader)
    assert guarded.omdml(option, str(link)).exit_code == 0
    assert link.is_symlink()
    assert (tmp_path / "target").stat().st_size
    refused = guarded.omdml(option, str(tmp_path / "nowhere/x"))
    assert (refused.exit_code, "name a file that can be written" in " ".join(refused.output.split())) == (2, True)


def test_names_beside_curves_never_stand_over_each_other():
    assert apart([50.0, 10.0, 12.0, 11.0], room=16.0) == [58.0, 10.0, 42.0, 26.0]


def test_the_bar_reaches_its_end_with_the_log(guarded):
    extents = log_extents(load(str(guarded.file), {}, {}).log)
    reached, shares = {}, []
    for records in guarded.log_read():
        reached |= {record.partition: record.offset + 1 for record in records}
        shares.append(share_read(extents, reached))
    assert shares == sorted(shares)
    assert shares[0] < 0.6
    assert shares[-1] == pytest.approx(1.0, abs=0.001)


@pytest.mark.parametrize(
    ("extents", "reached", "share"),
    [
        ([(0, 100), (50, 350)], {0: 100, 1: 50}, 0.25),
        ([(0, 100), (50, 350)], {}, 0.0),
        ([(7, 7)], {}, 0.0),
        # Two whole segments of a log in files and a half, of which one is read.
        ([(1 << OFFSET_BITS, (3 << OFFSET_BITS) + SEGMENT_BYTES // 2)], {0: 2 << OFFSET_BITS}, 0.4),
        # Events that came since are read too, and the bar stays at its end.
        ([(0, 100)], {0: 180}, 1.0),
    ],
)
def test_the_share_that_was_read_counts_all_partitions(extents, reached, share):
    read_extents = [Extent(Partition("t", number), begin, end, None) for number, (begin, end) in enumerate(extents)]
    assert share_read(
        read_extents, {Partition("t", number): offset for number, offset in reached.items()}
    ) == pytest.approx(share)
