"""The doctor: it reports, whatever it meets."""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

import pytest

from omdml.errors import StoreRefused
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.files.reader import open_log
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.configuration.loading import load
from omdml.workers.doctor import facts
from omdml.workers.doctor.checks import installation
from omdml.workers.doctor.findings import Level
from omdml.workers.doctor.status import Inspection
from tests.support.worlds import ITEMS, World, catalogue, events, items, run_until_idle


@pytest.fixture
def findings(tmp_path):
    """Examines an installation, which may have been damaged before."""
    catalogue(tmp_path / "items")
    table = {
        "log": {"path": str(tmp_path / "feedback"), "letters": str(tmp_path / "letters")},
        "store": {"url": f"dir:{tmp_path}/state"},
        "catalogues": {"items": {"path": str(tmp_path / "items")}},
        "models": {"shop": {"learner": "lomdml", "rank": 3}},
    }
    return lambda: {finding.check: finding for finding in installation.examine(load(None, {}, table))}


def test_a_sound_installation_is_well_in_every_respect(findings):
    assert [finding.check for finding in findings().values() if not finding.well] == []


def test_a_store_that_nobody_has_made_yet_is_reported_and_not_made(findings, tmp_path):
    assert findings()["store"] == ("store", Level.OK, f"dir:{tmp_path}/state is made by the first worker")
    assert not (tmp_path / "state").exists()


def test_a_catalogue_that_is_missing_is_one_error_with_all_models_that_need_it(tmp_path):
    table = {
        "log": {"path": str(tmp_path / "feedback"), "letters": str(tmp_path / "letters")},
        "store": {"url": f"dir:{tmp_path}/state"},
        "catalogues": {"items": {"path": str(tmp_path / "items")}},
        "models": {"shop": {}, "album-*": {}},
    }
    configuration = load(None, {}, table)
    (finding,) = [entry for entry in installation.examine(configuration) if not entry.well]
    assert finding.check == "catalogues"
    assert "make one with `omdml catalogue build`. These models need it: shop, album-*. Until" in finding.text
    status = Inspection(configuration).status()
    assert (status.errors, list(status.problems)) == (1, ["catalogues"])


@pytest.mark.parametrize("learner", ["lomdml", "diagonal", "oasis", "omdml", "cpmtml"])
def test_a_rate_that_does_nothing_to_small_features_is_a_finding(tmp_path, learner):
    # Given a catalogue of numbers around 0.001, which no scaling has brought up
    features, _ = items()
    small = {name: 1e-3 * x for name, x in features.items()}
    build_catalogue(tmp_path / "small", small, ids=[f"i{row}" for row in range(ITEMS)], scaling="none")
    parameters = {"learner": learner} | ({"rank": 3} if learner in ("lomdml", "cpmtml") else {})

    def rates(**more):
        table = {"catalogues": {"items": {"path": str(tmp_path / "small")}}, "models": {"shop": parameters | more}}
        result = next(entry for entry in installation.examine(load(None, {}, table)) if entry.check == "rates")
        return result.well, result.text

    # I expect a finding that says what to set, and none once it is set
    well, text = rates()
    assert not well
    assert "learns next to nothing: build the catalogue with --scaling minmax" in text
    name, rate = re.search(r"or set (eta|C) to about (\S+?)(;|$)", text).group(1, 2)
    assert rates(**{name: 2 * float(rate)})[0]


def test_a_checkpoint_that_does_not_fit_the_configuration_is_a_finding(findings, tmp_path):
    world = World(tmp_path, models={"shop": {"learner": "lomdml", "rank": 4}})
    world.store = DirectoryStore(tmp_path / "state")
    world.send(*events(20))
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    checkpoints = findings()["checkpoints"]
    assert not checkpoints.well
    assert "model 'shop' has learned 20 comparisons in another shape (rank 4 -> 3)" in checkpoints.text


def test_missing_metadata_of_a_package_is_reported_and_stops_no_check(findings, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    results = findings()
    assert results["versions"].well
    assert "omdml not installed as a package" in results["versions"].text
    assert results["store"].well


def test_an_unexpected_error_is_a_finding_and_the_other_checks_go_on(findings, monkeypatch):
    def broken(configuration):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(facts, "open_stores", broken)
    results = findings()
    assert not results["store"].well
    assert "ZeroDivisionError: by nothing" in results["store"].text
    assert results["log"].well


def pipe(path):
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: path.touch(), "holds 0 bytes that are no secret"),
        (lambda path: path.write_text("ab" * 16), "holds 32 bytes that are no secret"),
        (lambda path: path.write_bytes(b"\xff" * 64), "holds 64 bytes that are no secret"),
        (pipe, "a named pipe"),
        (Path.mkdir, "it is a folder"),
    ],
    ids=["empty", "half", "garbage", "pipe", "folder"],
)
def test_an_unusable_secret_is_an_error_because_workers_need_it(findings, tmp_path, make, says):
    assert (findings()["store's secret"].well, list((tmp_path / "state").glob("secret"))) == (True, [])
    (tmp_path / "state").mkdir()
    make(tmp_path / "state" / "secret")
    finding = findings()["store's secret"]
    assert (finding.level, says in finding.text) == (Level.ERROR, True), finding.text


def test_a_secret_that_may_not_be_read_is_a_warning_because_nodes_need_none(findings, monkeypatch):
    def refused(store):
        raise StoreRefused("no permissions to access a key")

    monkeypatch.setattr(DirectoryStore, "kept_secret", refused)
    assert findings()["store's secret"].level is Level.WARNING


def test_a_log_that_may_not_be_looked_at_is_an_ordinary_error(findings, tmp_path, monkeypatch):
    open_log(tmp_path / "feedback")

    def refused(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "exists", refused)
    log = findings()["log"]
    assert log.level is Level.ERROR
    assert log.text.startswith(f"feedback log {tmp_path}/feedback: [Errno 13] Permission denied")
    assert "does not foresee" not in log.text


def test_a_log_that_is_gone_may_be_on_a_disk_that_is_not_mounted(findings, tmp_path):
    world = World(tmp_path, models={"shop": {"learner": "lomdml", "rank": 3}})
    world.store = DirectoryStore(tmp_path / "state")
    world.send(*events(20))
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    text = findings()["checkpoints"].text
    assert "the configured log is not there: it was moved or deleted, its disk is not mounted" in text


def test_the_doctor_creates_no_folder_of_a_log_that_has_not_begun(findings, tmp_path):
    assert findings()["log"].well
    assert {path.name for path in tmp_path.iterdir()} & {"feedback", "letters"} == set()


def finding_about_the_log(folder, name, content):
    """What the doctor finds about a log that is a file with this content."""
    (folder / name).write_bytes(content)
    catalogue(folder / "items")
    table = {
        "log": {"path": str(folder / name), "letters": str(folder / "letters")},
        "store": {"url": f"dir:{folder}/state"},
        "catalogues": {"items": {"path": str(folder / "items")}},
        "models": {"shop": {"learner": "lomdml", "rank": 3}},
    }
    return {finding.check: finding for finding in installation.examine(load(None, {}, table))}["log"]


def test_a_file_that_no_worker_has_read_is_left_as_it_is_and_reported(tmp_path):
    finding = finding_about_the_log(tmp_path, "clicks.jsonl", b"{}\n")
    assert (finding.level, "no worker has read any of it" in finding.text) == (Level.WARNING, True)
    assert not (tmp_path / "clicks.jsonl.id").exists()


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("content", [b"[log]\npath = 3\n", b"\xff\xfe\n{}\n", b"query,relevant\n" * 9])
def test_a_file_whose_first_line_is_no_json_is_reported_as_no_log(tmp_path, content, begun):
    if begun:
        open_log(tmp_path / "clicks.jsonl")
    finding = finding_about_the_log(tmp_path, "clicks.jsonl", content)
    assert (finding.level, "its first line is not JSON" in finding.text) == (Level.WARNING, True), finding
    assert (tmp_path / "clicks.jsonl").read_bytes() == content


def test_a_first_line_that_is_still_being_written_is_no_reason_to_doubt_the_log(tmp_path):
    open_log(tmp_path / "clicks.jsonl")
    assert finding_about_the_log(tmp_path, "clicks.jsonl", b'{"type":"trip').level is Level.OK
