"""``omdml feed`` takes events and click logs, says what it sent, and what it left out."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from omdml.feedback import decode
from omdml.workers.cli import main
from tests.support.files.click_logs import CSV, METARANK, SEEN, UBI
from tests.support.worlds import catalogue

FITS = '{"type":"triplet","model":"%s","query":"i0","relevant":"i1","irrelevant":"i2"}\n'


@pytest.fixture
def feed(tmp_path, monkeypatch):
    """A folder with a catalogue and a model; returns a function that writes a file there and feeds it."""
    monkeypatch.chdir(tmp_path)
    catalogue(tmp_path / "items", mapped=True)
    (tmp_path / "omdml.toml").write_text('[catalogues.items]\npath = "items"\n[models.shop]\n')

    def run(text, *options, names=("log",)):
        for name, part in zip(names, text if isinstance(text, list) else [text], strict=True):
            (tmp_path / name).write_text(part)
        return CliRunner().invoke(main, ["feed", *options, *names])

    return run


def logged(folder):
    return [decode(line) for file in sorted(folder.glob("feedback/*.jsonl")) for line in file.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (UBI, ["--format", "ubi", "--field", "query=query_attributes.item"]),
        (METARANK, ["--format", "metarank"]),
        (CSV.replace("shop", "department"), ["--format", "csv"]),
    ],
)
def test_a_click_log_of_each_format_is_in_the_log_as_pages(tmp_path, feed, text, options):
    done = feed(text, *options)
    assert (done.exit_code, "log: sent 1 page, refused 0" in done.output) == (0, True), done.output
    (page,) = logged(tmp_path)
    order = page.positions or (1, 2, 3, 4)
    assert [item for _, item in sorted(zip(order, page.shown, strict=True))] == list(SEEN["shown"])
    assert (page.model, page.query, page.clicked) == ("shop", "i0", ("i7",))


def test_clicks_in_a_file_of_their_own_find_the_pages_of_the_file_before(tmp_path, feed):
    lines = [line for line in METARANK.splitlines() if line]
    done = feed(
        ["\n".join(lines[:2]), "\n".join(lines[2:])], "--format", "metarank", "--action", "purchase", "--dry-run",
        names=("shown", "clicked"),
    )  # fmt: skip
    assert "shown clicked: would send 1 page, refused 0" in done.output
    assert "left out: events of other actions: 2" in done.output
    assert not (tmp_path / "feedback").exists()


def test_lines_of_a_click_log_that_cannot_be_learned_are_reported(feed):
    text = METARANK.replace('"i7"', '"nobody"') + "{\n"
    done = feed(text, "--format", "metarank")
    assert done.exit_code == 1
    assert "sent nothing, refused 2" in done.output
    assert "line 3: unknown_item" in done.output
    assert "line 7: not_json" in done.output


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--action", "buy"], "--action is about click logs"),
        (["--open-pages", "5"], "--open-pages is about click logs"),
        (["--format", "csv", "--action", "buy"], "the column `clicked` says"),
        (["--format", "ubi", "--field", "color=x"], "expected PART=PATH"),
        (["--format", "csv"], "no column 'page'"),
        (
            ["--format", "csv", "--field", "page=a", "--field", "query=b", "--field", "item=a",
             "--field", "clicked=b", "--field", "user=who"],
            "no column 'who'",
        ),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_the_format_or_the_log_are_refused(feed, options, says):
    done = feed("a,b\n", *options)
    assert done.exit_code != 0
    assert says in " ".join(done.output.split())


def test_a_header_that_is_no_csv_is_refused_in_words(feed):
    done = feed('{"page":"1","query":"i0"}\n', "--format", "csv")
    assert "the first line is not valid CSV" in done.output


def test_a_field_that_no_record_has_is_reported(feed):
    options = "--format", "metarank", "--field", "user=usr"
    assert "--field user=usr: no record has this field" in feed(METARANK, *options).output
    assert "no record has" not in feed(METARANK, *options[:3], "user=user").output


def test_a_field_that_records_have_is_not_reported_beside_a_missing_one(feed):
    output = feed(METARANK, "--format", "metarank", "--field", "query=item", "--field", "user=user").output
    assert "--field query=item: no record has this field" in output
    assert "--field user=user" not in output


def test_a_file_of_csv_that_is_read_as_json_is_refused_once(feed):
    done = feed("page,query,item,clicked\n1,i0,i1,0\n1,i0,i2,1\n", names=("log.csv",))
    assert done.exit_code == 2
    assert "log.csv is CSV, and its first line is no event in JSON: pass --format csv" in done.output


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ('{"type":"triplet","model":"shpo","query":"i0","relevant":"i1","irrelevant":"i2"}', "did you mean 'shop'?"),
        ('{"type":"triplet","model":"shop","query":"i0","relevant":"i1","irrelevant":"no"}', "Put the item first, or"),
        ('{"type":"page","model":"shop","query":"i0","shown":["i1","i2"],"clicked":[]}', "do not send it"),
    ],
)
def test_a_refused_event_says_what_to_do(feed, event, expected):
    assert expected in feed(event).output


def test_a_model_of_the_command_line_is_added_to_those_of_the_configuration(feed):
    done = feed("".join(FITS % model for model in ("shop", "other")), "--model", "other", "--dry-run")
    assert "would send 2 triplets, refused 0" in done.output
    assert "to add to those of [models]" in " ".join(CliRunner().invoke(main, ["feed", "--help"]).output.split())


@pytest.mark.usefixtures("feed")
def test_feed_says_that_it_reads_events_from_the_terminal(tmp_path):
    ours, theirs = os.openpty()
    # Ctrl-D ends the input.
    os.write(ours, b"\x04")
    done = subprocess.run(
        [sys.executable, "-m", "omdml.workers.cli", "feed", "--dry-run"], stdin=theirs, capture_output=True, text=True,
        cwd=tmp_path, timeout=120, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, "reads from the terminal, one event on each line" in done.stderr) == (0, True), done.stderr


def test_fields_that_nothing_reads_are_reported_beside_what_was_sent(tmp_path, feed):
    event = '{"type":"triplet","model":"shop","query":"i1","relevant":"i2","irrelevant":"i3","usr":"ann"}\n'
    done = feed(2 * event)
    assert (done.exit_code, "log: sent 2 triplets, refused 0" in done.output) == (0, True), done.output
    assert "fields that nothing reads: 'usr' (2 events; did you mean 'user'?)" in done.output
    assert len(logged(tmp_path)) == 2
