"""``omdml sync`` as a process of its own: probes, messages. ``tests/fault/kills/test_killed_sync.py`` kills it."""

from __future__ import annotations

from contextlib import closing
from importlib.metadata import EntryPoint, EntryPoints

import httpx
import pytest

from omdml.errors import ConfigurationError
from omdml.workers.wiring.indexes import open_index
from tests.support.catalogues.indexes import start_sync
from tests.support.processes import free_port, wait_for
from tests.support.worlds import ITEMS

# One process runs the tests of indexes, with one PostgreSQL.
pytestmark = pytest.mark.xdist_group("indexes")


def test_the_daemon_tells_how_it_is(installed, real_database, tmp_path):
    port = free_port()
    process = start_sync(tmp_path, real_database, "--follow", "--bind", f"127.0.0.1:{port}")

    def answers(path):
        try:
            return httpx.get(f"http://127.0.0.1:{port}{path}", verify=False).status_code == 200
        except httpx.HTTPError:
            return False

    wait_for(lambda: answers("/readyz"), "it to be ready", 60, process)
    page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert f"omdml_sync_items {ITEMS:.1f}" in page
    assert 'omdml_sync_rows_total{what="written"} 120.0' in page
    assert process.stop() == 0
    assert "event=sync_current" in process.said
    assert real_database.address not in process.said


def test_the_command_ends_with_what_it_did(installed, real_database, tmp_path):
    process = start_sync(tmp_path, real_database)
    assert process.wait() == 0
    assert "version 0, serial 1: 120 rows written, 0 removed, 120 items of 16 numbers" in process.said


def test_an_address_of_an_unknown_kind_is_refused_without_its_password():
    with pytest.raises(ConfigurationError, match="expected one of postgresql://USER@HOST/DATABASE, lancedb:") as raised:
        open_index("mysql://me:secret@host/shop", None, "shop", True)
    assert "secret" not in str(raised.value)


def test_an_index_of_another_package_is_found_by_its_entry_point(tmp_path, monkeypatch):
    point = EntryPoint("sqlite", "tests.support.catalogues.indexes:SqliteIndex", "omdml.indexes")
    monkeypatch.setattr(
        "omdml.workers.wiring.indexes.entry_points", lambda group: EntryPoints([point]).select(group=group)
    )
    with closing(open_index(f"sqlite:{tmp_path / 'index'}", None, "shop", True)) as index:
        assert index.live() is None
