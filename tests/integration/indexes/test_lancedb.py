"""``omdml sync`` into LanceDB: its search structure, its old versions, cuts in the middle, and what it refuses."""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from contextlib import closing
from datetime import timedelta
from itertools import count
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from omdml.errors import ConfigurationError
from omdml.streams.indexes.lancedb.writer import LanceIndex
from omdml.streams.protocols.index import IndexAway, Indexed, IndexRefused
from tests.support.catalogues.exports import error
from tests.support.catalogues.indexes import NAME, Lance, Sync
from tests.support.forks import FORKS
from tests.support.processes import die_with_parent, wait_for
from tests.support.worlds import ITEMS

# One process runs the tests of indexes, with one PostgreSQL.
pytestmark = pytest.mark.xdist_group("indexes")
KILLS = 5


@pytest.fixture
def database(tmp_path):
    return Lance(tmp_path / "vectors")


@pytest.fixture
def few_are_enough(monkeypatch):
    """Build a search structure from fifty items on."""
    monkeypatch.setattr("omdml.streams.indexes.lancedb.writer.LEAST_ROWS", 50)


def moved(shop, sync, further=40):
    """Learn, publish and bring the version to the readers."""
    shop.learn(further)
    version = shop.publish()
    assert sync.step().switched
    return version


def stats(database):
    """The search structure of the live version; None if it has none."""
    table = database.table()
    table.checkout("live")
    return table.index_stats("embedding_idx")


@pytest.mark.usefixtures("few_are_enough")
def test_searches_look_into_cells_and_find_the_nearest(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
    assert (stats(database).index_type, stats(database).num_indexed_rows) == ("IVF_FLAT", ITEMS)
    table = database.table()
    table.checkout("live")
    place = table.search().where("id = 'i5'").to_list()[0]["embedding"]
    search = table.search(place).distance_type("l2").where("id <> 'i5'").limit(5)
    assert "ANN" in search.explain_plan()
    expected, distances = shop.expected(20, "i5", 5)
    rows = search.to_list()
    assert [row["id"] for row in rows] == expected
    assert [row["_distance"] for row in rows] == pytest.approx(list(distances), rel=1e-3)


@pytest.mark.usefixtures("few_are_enough")
def test_every_item_of_a_live_version_is_in_its_search_structure(shop, database):
    with Sync(shop, database.open(), moved=0.02) as sync:
        sync.step()
        written = 0
        for _ in range(6):
            shop.learn(3)
            shop.publish()
            written += sync.step().written
            assert (stats(database).num_indexed_rows, stats(database).num_unindexed_rows) == (ITEMS, 0)
    assert written > 0


@pytest.mark.usefixtures("few_are_enough")
def test_cells_are_chosen_again_after_many_small_changes(shop, database, monkeypatch):
    import lancedb

    trained = Counter()
    create = lancedb.table.LanceTable.create_index

    def create_and_count(table, *arguments, **options):
        trained["times"] += 1
        return create(table, *arguments, **options)

    monkeypatch.setattr(lancedb.table.LanceTable, "create_index", create_and_count)
    monkeypatch.setattr(LanceIndex, "prepare", lambda *_: None)
    index, written = database.open(), 0
    with Sync(shop, index, moved=0.05) as sync:
        sync.step()
        assert trained["times"] == 1
        while trained["times"] == 1:
            shop.learn(3)
            shop.publish()
            written += sync.step().written
            # As if the next process did it.
            index.close()
    assert written > ITEMS / 2


def test_small_tables_and_exact_scans_have_no_search_structure(shop, database, monkeypatch):
    with Sync(shop, database.open()) as sync:
        sync.step()
    assert stats(database) is None
    monkeypatch.setattr("omdml.streams.indexes.lancedb.writer.LEAST_ROWS", 50)
    with Sync(shop, database.open()) as sync:
        moved(shop, sync)
    assert stats(database) is not None
    with Sync(shop, LanceIndex(database.folder, NAME, approximate=False)) as sync:
        version = moved(shop, sync)
    assert stats(database) is None
    assert database.read().version == version


@pytest.fixture
def index(database):
    with closing(database.open()) as index:
        yield index


def fill(index, ids, attributes=None):
    """Bring these ids, at two numbers each, to the readers."""
    rows = index.draft(2)
    places = np.arange(2 * len(ids), dtype=np.float32).reshape(-1, 2)
    index.write(rows._replace(ids=ids, embedding=places, attributes=attributes or [{}] * len(ids)))
    index.switch(indexed(1, len(ids)))


def indexed(version, items):
    """The description of a version of ``items`` items, of two numbers each."""
    return Indexed(
        model="shop", task=None, version=version, serial=version, digest="", generation="", items=items, width=2,
        moved=0, bound=0,
    )  # fmt: skip


def test_readers_filter_by_attributes(index, database):
    fill(index, ["i0", "i1", "i2"], [{"price": 1}, {"price": 2.5, "brand": "o'neil"}, {"brand": "other"}])
    table = database.table()
    table.checkout("live")
    near = table.search([0.0, 0.0]).distance_type("l2")
    cheap = near.where("json_get_float(attributes, 'price') < 3").to_list()
    assert [(row["id"], row["_distance"]) for row in cheap] == [("i0", 1), ("i1", 13)]
    assert table.count_rows("json_get_string(attributes, 'brand') = 'o''neil'") == 1


def test_ids_with_quotes_are_removed(index):
    names = ["it's", "'); --", '"x"', "plain"]
    fill(index, names)
    index.remove(names[:3])
    assert index.draft(2).ids == ["plain"]


def test_a_row_that_is_written_twice_is_there_once(index, database):
    rows = index.draft(2)
    for place in (1, 2):
        index.write(rows._replace(ids=["a"], embedding=np.full((1, 2), place, np.float32), attributes=[{}]))
    assert [row["embedding"] for row in database.table().search().to_list()] == [[2.0, 2.0]]


@pytest.mark.parametrize("step", ["_to_disk", "_prune"])
@pytest.mark.parametrize("moves", [True, False])
def test_a_cut_at_any_step_of_a_switch_leaves_one_whole_version(shop, database, monkeypatch, step, moves):
    with Sync(shop, database.open()) as sync:
        sync.step()
        if moves:
            shop.learn(40)
        version = shop.publish(version=60)
        with monkeypatch.context() as patched:
            patched.setattr(LanceIndex, step, lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(IndexAway, match=r"No space left on device.*is the disk full"):
                sync.step()
        # The tag is moved between the two.
        assert database.read().version == (20 if step == "_to_disk" else version)
    with Sync(shop, database.open()) as sync:
        # The draft has all rows. A switch that readers saw turns the goal a little more: few rows may move again.
        assert sync.step().written <= (0 if step == "_to_disk" else ITEMS / 10)
    seen = database.read()
    assert seen.version == version
    assert error(shop, seen.vectors, version) <= 0.1


def test_an_unfinished_draft_is_given_up_for_a_version_that_moved_nothing(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
        before = sync.index.live()
        sync.index.draft(16)
        sync.index.remove(["i3", "i4"])
        assert database.table().count_rows() == ITEMS - 2
        shop.publish(version=21)
        assert not sync.step().switched
        assert sync.index.live()[0].version == 21
        assert sorted(sync.index.draft(16).ids) == sorted(before[1].ids)
    assert len(database.read().vectors) == ITEMS


def test_a_reader_may_stay_at_a_version_for_some_minutes(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
        reader = database.table()
        reader.checkout("live")
        before = reader.to_arrow()
        for _ in range(3):
            moved(shop, sync)
        assert reader.to_arrow().equals(before)


def test_a_reader_of_a_removed_version_gets_an_error_and_checks_out_again(shop, database, monkeypatch):
    with Sync(shop, database.open()) as sync:
        sync.step()
        reader = database.table()
        reader.checkout("live")
        monkeypatch.setattr(LanceIndex, "_prune", prune_all)
        moved(shop, sync)
    with pytest.raises(RuntimeError, match="Not found"):
        reader.to_arrow()
    reader.checkout("live")
    assert reader.count_rows() == ITEMS


def prune_all(_index, table, _older_than_s):
    with warnings.catch_warnings():
        # Newer versions of LanceDB warn about this, which is intended here.
        warnings.simplefilter("ignore")
        table.optimize(cleanup_older_than=timedelta(0))


def test_old_versions_are_removed_once_nobody_may_read_them(shop, database, monkeypatch):
    monkeypatch.setattr("omdml.streams.indexes.lancedb.writer.KEPT_S", 0.0)
    clock = [1e9]
    monkeypatch.setattr("omdml.streams.indexes.lancedb.writer.time", SimpleNamespace(time=lambda: clock[0]))
    ages = []
    monkeypatch.setattr(LanceIndex, "_prune", lambda _index, _table, older_than_s: ages.append(older_than_s))
    with Sync(shop, database.open()) as sync:
        sync.step()
        for _ in range(3):
            clock[0] += 1000
            moved(shop, sync)
    # What was live until now is kept, from when it was made; nothing before it.
    assert ages == [1.0, 1001.0, 1001.0, 1001.0]


def test_a_tag_of_somebody_else_keeps_old_versions_and_does_not_stop_the_sync(shop, database, monkeypatch):
    with Sync(shop, database.open()) as sync:
        sync.step()
        table = database.table()
        table.tags.create("mine", table.version)
        prune = LanceIndex._prune
        monkeypatch.setattr(LanceIndex, "_prune", lambda index, table, _: prune(index, table, 0.01))
        with capture_logs() as logs:
            version = moved(shop, sync)
    assert [entry["event"] for entry in logs if entry["log_level"] == "warning"] == ["index_not_pruned"]
    assert database.read().version == version


def test_a_table_that_omdml_did_not_make_is_left_alone(shop, database):
    import lancedb

    mine = lancedb.connect(database.folder).create_table(NAME, pa.table({"id": ["a"], "vector": [[1.0, 2.0]]}))
    with Sync(shop, database.open()) as sync, pytest.raises(IndexRefused, match="that omdml did not make"):
        sync.step()
    assert mine.count_rows() == 1


def test_a_folder_that_cannot_be_made_is_reported(shop, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "a" / "b", tmp_path / "file"):
        with Sync(shop, LanceIndex(folder, NAME)) as sync, pytest.raises(IndexRefused, match="or a parent to make it"):
            sync.step()


def test_a_damaged_table_is_reported_with_what_to_do(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
    for path in (database.folder / f"{NAME}.lance" / "data").iterdir():
        path.unlink()
    with (
        Sync(shop, database.open()) as sync,
        pytest.raises(IndexAway, match=r"remove .*\.lance and sync again") as raised,
    ):
        sync.step()
    assert ".cargo" not in str(raised.value)


def test_bad_names_and_missing_packages_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ConfigurationError, match="--name 'a/b': expected at most 100"):
        LanceIndex(tmp_path, "a/b")
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'omdml\[lancedb\]'"):
        LanceIndex(tmp_path, NAME)


def bring_versions(folder):
    """Write one version after the other, until this process is killed."""
    die_with_parent()
    index = LanceIndex(folder, NAME)
    live = index.live()
    for version in count(live[0].version + 1 if live else 1):
        rows = index.draft(2)
        for start in range(0, 40, 8):
            ids = [f"i{row}" for row in range(start, start + 8)]
            places = np.full((8, 2), version, np.float32)
            index.write(rows._replace(ids=ids, embedding=places, attributes=[{}] * 8))
        index.switch(indexed(version, 40))


@pytest.mark.deep
def test_kills_at_any_moment_leave_readers_one_whole_version(database):
    draw, seen = np.random.default_rng(0), []
    tag = database.folder / f"{NAME}.lance" / "_refs" / "tags" / "live.json"

    def brings_another():
        if tag.exists():
            seen.append(database.read())
        return bool(seen) and seen[-1].version > before

    for _ in range(KILLS):
        before = seen[-1].version if seen else 0
        writer = FORKS.Process(target=bring_versions, args=(database.folder,), daemon=True)
        writer.start()
        wait_for(brings_another, "another version", 60)
        # It is somewhere in the next ones.
        time.sleep(draw.uniform(0, 0.5))
        writer.kill()
        writer.join()
        seen.append(database.read())
    assert all(len(answer.vectors) == 40 for answer in seen)
    assert all({vector[0] for vector in answer.vectors.values()} == {answer.version} for answer in seen)
    versions = [answer.version for answer in seen]
    assert versions == sorted(versions)
    assert versions[-1] >= KILLS
