"""The doctor: it reports, whatever it meets."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.worlds import catalogue
from workers import doctor, wiring
from workers.config import load


@pytest.fixture
def findings(tmp_path):
    """Examines an installation, which may have been damaged before."""
    catalogue(tmp_path / "items")
    table = {
        "log": {"path": str(tmp_path / "feedback"), "letters": str(tmp_path / "letters")},
        "store": {"url": f"dir:{tmp_path}/state"},
        "catalogues": {"items": {"path": str(tmp_path / "items")}},
        "models": {"shop": {"rank": 3}},
    }
    return lambda: {found.check: found for found in doctor.examine(load(None, {}, table))}


def test_a_sound_installation_is_well_in_every_respect(findings):
    assert [found.check for found in findings().values() if not found.well] == []


def test_a_package_without_metadata_is_said_and_no_reason_to_stop(findings, monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    found = findings()
    assert found["versions"].well
    assert "omdml not installed as a package" in found["versions"].text
    assert found["store"].well


def test_what_nobody_foresaw_is_a_finding_and_the_other_checks_go_on(findings, monkeypatch):
    def broken(configuration):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setattr(wiring, "open_stores", broken)
    found = findings()
    assert not found["store"].well
    assert "ZeroDivisionError: by nothing" in found["store"].text
    assert found["log"].well
