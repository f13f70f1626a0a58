"""Devices, named pipes, folders and huge files in place of ours: refused at once, by name, and never waited for."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from omdml.errors import CatalogueError, ConfigurationError, CorruptError, OmdmlError, SourceError, StoreError
from omdml.streams.bounded_files import STATE_BYTES, Unfit, open_regular, read_regular, text_lines
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.files.group_state import GroupState
from omdml.streams.files.segments import SegmentedLog
from omdml.streams.files.source import FileSink
from omdml.streams.protocols.log import Partition
from omdml.streams.stores.folder.states import read_state
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.configuration.loading import load
from omdml.workers.demo.people.labels import read_labels
from tests.support import worlds
from tests.support.files.files import read_records
from tests.support.files.misfits import device, folder, huge, pipe
from tests.support.learning import store_samples
from tests.support.processes import ROOT

Put = Callable[[Path], None]
PARTITION = Partition("t", 0)


in_its_place = pytest.mark.parametrize("put", [pipe, device, folder, huge])


@in_its_place
def test_only_regular_files_of_bounded_size_are_read(put: Put, tmp_path: Path) -> None:
    put(tmp_path / "it")
    openers = {
        pipe: "a named pipe",
        device: "a device",
        folder: "a folder",
        huge: "1,099,511,627,776 bytes, expected at",
    }
    with pytest.raises(Unfit, match=openers[put]):
        read_regular(tmp_path / "it", 1000)


def test_a_file_as_large_as_may_be_is_read(tmp_path: Path) -> None:
    (tmp_path / "it").write_bytes(b"x" * 1000)
    assert len(read_regular(tmp_path / "it", 1000)) == 1000
    with pytest.raises(Unfit, match="it has 1,000 bytes, expected at most 999"):
        read_regular(tmp_path / "it", 999)


def test_a_symbolic_link_to_a_regular_file_will_do(tmp_path: Path) -> None:
    (tmp_path / "there").write_bytes(b"x")
    (tmp_path / "it").symlink_to(tmp_path / "there")
    assert read_regular(tmp_path / "it", 10) == b"x"


def test_a_line_may_be_as_long_as_the_limit(tmp_path: Path) -> None:
    (tmp_path / "it").write_text("12345\n123\n123456\n")
    lines = text_lines(tmp_path / "it", 6)
    assert [next(lines), next(lines)] == ["12345\n", "123\n"]
    with pytest.raises(Unfit, match="line 3 has more than 6 characters"):
        next(lines)


@in_its_place
def test_a_secret_is_a_regular_file(put: Put, tmp_path: Path) -> None:
    put(tmp_path / "token")
    with pytest.raises(ConfigurationError, match=r"node.token_file .*: cannot be read \(it "):
        load(None, {"OMDML_NODE__TOKEN_FILE": str(tmp_path / "token")})


@in_its_place
def test_a_configuration_is_a_regular_file(put: Put, tmp_path: Path) -> None:
    put(tmp_path / "omdml.toml")
    with pytest.raises(ConfigurationError, match=r"cannot be read \(it "):
        load(tmp_path / "omdml.toml", {})


def store(path: Path) -> DirectoryStore:
    """A folder store with two checkpoints and two snapshots of "shop"."""
    store = DirectoryStore(path)
    epoch = store_samples.published(store, 1, 2)
    for offset in (1, 2):
        store.save(store_samples.checkpoint(offset), epoch)
    store.move_mark(PARTITION, None, 7)
    return store


@in_its_place
def test_a_checkpoint_that_is_no_file_gives_way_to_the_one_before(put: Put, tmp_path: Path) -> None:
    opened = store(tmp_path)
    put(max(tmp_path.rglob("*.checkpoint")))
    claim = opened.claim("shop")
    assert claim.fell_back
    assert claim.checkpoint
    assert claim.checkpoint.next == 1


@in_its_place
def test_a_snapshot_that_is_no_file_is_damaged(put: Put, tmp_path: Path) -> None:
    opened = store(tmp_path)
    put(next(tmp_path.rglob("2.*.safetensors")))
    with pytest.raises(CorruptError, match="go back to another version"):
        opened.load("shop")
    assert opened.load("shop", 1)


@in_its_place
@pytest.mark.parametrize(
    "name",
    ["store-id", "format", "marks/t.0", "marks/shop.saved", "models/shop/history/000000000002.json", "replacements"],
)
def test_what_else_a_store_keeps_is_a_regular_file(put: Put, name: str, tmp_path: Path) -> None:
    opened = store(tmp_path)
    put(tmp_path / name)

    def use() -> None:
        DirectoryStore(tmp_path)
        opened.marks([PARTITION])
        opened.current("shop")
        opened.claim("shop")

    with pytest.raises(OmdmlError, match=name.rpartition("/")[2]):
        use()


@in_its_place
@pytest.mark.parametrize("name", ["catalogue.json", "ids.txt", "sets.jsonl", "shape.npy"])
def test_what_a_catalogue_keeps_is_a_regular_file(put: Put, name: str, tmp_path: Path) -> None:
    worlds.catalogue(tmp_path)
    put(tmp_path / name)
    with pytest.raises(CatalogueError, match=name):
        MappedCatalogue(tmp_path).verify()


def test_a_manifest_that_claims_more_ids_than_there_are_is_refused(tmp_path: Path) -> None:
    worlds.catalogue(tmp_path)
    path = tmp_path / "catalogue.json"
    manifest = path.read_text()
    claimed = manifest.replace('"ids_bytes":', '"ids_bytes":1000000000')
    assert claimed != manifest
    path.write_text(claimed)
    with pytest.raises(CatalogueError, match=r"ids.txt: \d+ bytes follow the part before, expected 1000000000"):
        MappedCatalogue(tmp_path)


@pytest.mark.parametrize("put", [pipe, device, folder])
def test_a_log_is_read_from_and_written_to_regular_files(put: Put, tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    sink.send(b"{}")
    sink.close()
    put(tmp_path / "00000001.jsonl")
    with pytest.raises(SourceError, match=r"00000001.jsonl"):
        list(read_records(tmp_path))
    with pytest.raises(SourceError, match=r"00000001.jsonl"):
        FileSink(tmp_path).send(b"{}")


@in_its_place
def test_a_committed_position_is_a_regular_file(put: Put, tmp_path: Path) -> None:
    put(tmp_path / "omdml.commit")
    with pytest.raises(SourceError, match=r"omdml.commit"):
        GroupState(SegmentedLog(tmp_path), "omdml").read()


@pytest.mark.parametrize("put", [pipe, device, folder])
@pytest.mark.parametrize("name", ["color.npy", "color.npz", "color.csv", "color.parquet"])
def test_a_catalogue_is_built_from_regular_files(put: Put, name: str, tmp_path: Path) -> None:
    put(tmp_path / name)
    with pytest.raises(CatalogueError, match=name):
        build_catalogue(tmp_path / "items", [tmp_path / name])


@in_its_place
def test_labels_are_a_regular_file(put: Put, tmp_path: Path) -> None:
    put(tmp_path / "labels.csv")
    with pytest.raises(ConfigurationError, match=r"labels.csv"):
        read_labels(tmp_path / "labels.csv")


def test_a_checkpoint_as_large_as_may_be_is_not_read_if_its_beginning_is_none(tmp_path: Path) -> None:
    with (tmp_path / "it").open("wb") as file:
        file.truncate(STATE_BYTES)
    assert len(read_state(tmp_path / "it")) < 10


# Files that open others in a way of their own, with the reason.
EXEMPT = {
    "streams/bounded_files.py": "It is the way that all others use.",
    "streams/stores/folder/backups.py": "It writes a backup, and reads the files of one into a new folder.",
    "streams/disk.py": "It writes files whose names it chooses, and syncs folders.",
    "streams/catalogues/changes/journal.py": "It locks a folder.",
    "streams/indexes/lancedb/writer.py": "It has a lock of its own.",
    "workers/cli.py": "It opens the null device.",
    "workers/node/http/endpoints/feedback.py": "It reads click.js, a file of this package.",
    "workers/node/http/endpoints/console.py": "It reads files of this package.",
    "workers/operate/export/exporter.py": "It locks a folder.",
    "workers/operate/export/layout.py": "It opens them in the same way, to compute a digest.",
    "workers/demo/services/processes.py": "It writes the logs of its child processes.",
}


def test_files_are_opened_in_one_way_only() -> None:
    results = set()
    for path in sorted([*(ROOT / "streams").rglob("*.py"), *(ROOT / "workers").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("open", "os.open") or called.endswith((".read_bytes", ".read_text")):
                    results.add(str(path.relative_to(ROOT)))
                if called.endswith(("ZipFile", "ParquetFile")) and "path" in ast.unparse(node.args[0])[-4:]:
                    results.add(str(path.relative_to(ROOT)))
    assert results == EXEMPT.keys()


def test_a_descriptor_of_what_is_refused_is_closed(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(Unfit):
        open_regular(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_folder_store_that_cannot_be_one_says_so(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreError, match=r"Not a directory.*check that the folder is there"):
        DirectoryStore(tmp_path / "state")
