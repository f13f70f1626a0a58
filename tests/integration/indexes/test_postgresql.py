"""``omdml sync`` into a real PostgreSQL: transactions, rights, outages, and what it refuses."""

from __future__ import annotations

import json
import threading
from contextlib import closing

import psycopg
import pytest

from omdml.streams.indexes.postgresql.writer import PostgresIndex
from omdml.streams.protocols.index import IndexAway, IndexRefused
from omdml.workers.node.attributes.table import Attributes
from tests.support.catalogues.indexes import (
    NAME,
    Postgres,
    Sync,
    Watcher,
    bytes_of,
    of_one_version,
    read_while_versions_come,
    seen,
    start_sync,
    widen,
)
from tests.support.processes import free_port, wait_for
from tests.support.worlds import ITEMS

# One process runs the tests of indexes, with one PostgreSQL.
pytestmark = pytest.mark.xdist_group("indexes")


@pytest.fixture
def database(postgres):
    return Postgres(postgres.url)


class PairReader(Watcher):
    """Reads all rows twice in one transaction, again and again."""

    def run(self):
        try:
            with self._database.reader() as connection:
                while not self.ended.wait(0.02):
                    with connection.transaction():
                        self.answers += [self._read(connection), self._read(connection)]
        except BaseException as error:
            self.failed = error

    def _read(self, connection):
        return seen(connection.execute(f"SELECT id, embedding, attributes, version FROM {NAME}").fetchall())


def test_a_sync_waits_until_the_server_has_noticed_that_the_one_before_ended(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
    # Given a connection that is not closed yet, with the lock of the sync before
    with psycopg.connect(database.address, autocommit=True) as before:
        key = "hashtext('omdml_sync'), hashtext(current_schema() || '.' || %s)"
        before.execute(f"SELECT pg_advisory_lock({key})", [NAME])
        end = threading.Timer(0.5, before.close)
        end.start()
        # Then the next one begins once it is closed.
        with Sync(shop, database.open()) as sync:
            sync.step()
            assert before.closed
        end.join()


def test_a_transaction_sees_the_same_rows_until_it_ends(shop, database):
    reader = PairReader(database)
    read_while_versions_come(reader, shop, database)
    assert of_one_version(shop, reader.answers)
    pairs = zip(reader.answers[::2], reader.answers[1::2], strict=True)
    # A version that moved no row may be noted meanwhile.
    assert all(bytes_of(first) == bytes_of(second) for first, second in pairs)


def test_a_transaction_older_than_the_switch_is_told_to_begin_again(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
    with Sync(shop, database.open()) as sync, database.reader() as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with reader.transaction(force_rollback=True):
            # Its snapshot is taken here, and the view is first used after the switch.
            reader.execute("SELECT 1")
            shop.learn(40)
            shop.publish()
            assert sync.step().switched
            with pytest.raises(psycopg.errors.InvalidTextRepresentation, match="begin it again"):
                reader.execute(f"SELECT count(*) FROM {NAME}")
        assert reader.execute(f"SELECT count(*) FROM {NAME}").fetchone() == (ITEMS,)


def test_a_transaction_on_the_view_delays_the_switch_and_no_other_reader(shop, database, monkeypatch):
    monkeypatch.setattr("omdml.streams.indexes.postgresql.writer.SWITCH_TRIES", 2)
    with Sync(shop, database.open()) as sync:
        sync.step()
    with Sync(shop, database.open()) as sync, database.reader() as reader:
        with reader.transaction():
            reader.execute(f"SELECT count(*) FROM {NAME}")
            shop.learn(40)
            shop.publish()
            with pytest.raises(IndexAway, match="end those that are left open"):
                sync.step()
            assert database.read().version == 20
        # All rows are in the draft already.
        assert sync.step().written == 0
    assert database.read().version == 60


def test_a_damaged_row_of_what_readers_see_is_refused_with_what_to_do(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
    database.execute('UPDATE omdml_sync SET indexed = \'{"version": "no number"}\'')
    with Sync(shop, database.open()) as sync, pytest.raises(IndexRefused, match="damaged"):
        sync.step()
    with closing(database.open().reader()) as reader, pytest.raises(IndexRefused, match="damaged"):
        reader.live()


@pytest.mark.parametrize("dropped", [f"VIEW {NAME}", f"TABLE {NAME}_a CASCADE"])
def test_an_index_whose_view_was_dropped_is_nothing_to_readers_and_made_again(shop, database, dropped):
    with Sync(shop, database.open()) as sync:
        sync.step()
    database.execute(f"DROP {dropped}")
    with closing(database.open().reader()) as reader:
        assert reader.live() is None
        with Sync(shop, database.open()) as sync:
            sync.step()
        assert reader.live().version == 20
    assert len(database.read().vectors) == ITEMS


def test_rows_that_did_not_move_are_not_written(shop, database):
    shop.learn(300)
    shop.publish()
    with Sync(shop, database.open(), moved=0.02) as sync:
        sync.step()
        shop.learn(40)
        shop.publish()
        sync.step()
        while True:
            before = database.written()
            shop.learn(2)
            shop.publish()
            if (synced := sync.step()).switched:
                break
    after = database.written()
    # One side was written, and of it the rows that moved.
    (side,) = [side for side in "ab" if before[side] != after[side]]
    changed = {name for name in after[side] if before[side][name] != after[side][name]}
    assert 0 < len(changed) == synced.written < ITEMS


def test_searches_use_the_index_through_the_view(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
    with database.reader() as reader:
        reader.execute("SET enable_seqscan = off")
        nearest = f"ORDER BY embedding <-> (SELECT embedding FROM {NAME} WHERE id = 'i5') LIMIT 5"
        plan = reader.execute(f"EXPLAIN SELECT id FROM {NAME} {nearest}").fetchall()
        assert f"Index Scan using {NAME}_a_hnsw" in str(plan)
        results = reader.execute(f"SELECT id FROM {NAME} WHERE id <> 'i5' {nearest}").fetchall()
    assert [row[0] for row in results] == shop.expected(20, "i5", 5)[0]


def test_a_database_that_goes_in_the_middle_is_waited_for(installed, database, postgres, tmp_path):
    process = start_sync(tmp_path, database, "--follow", "--rows-per-second", "100")
    wait_for(lambda: "sync_writing" in process.said, "it to write", 60, process)
    postgres.kill()
    wait_for(lambda: "sync_waiting" in process.said, "it to notice", 60, process)
    postgres.start()
    wait_for(lambda: "sync_current" in process.said, "it to go on", 60, process)
    assert process.stop() == 0
    assert database.read().version == 0


def test_a_database_that_is_away_is_reported_in_a_sentence(shop):
    away = Postgres(f"postgresql://me:secret@127.0.0.1:{free_port()}/shop")
    with Sync(shop, away.open()) as sync, pytest.raises(IndexAway, match="is PostgreSQL up") as raised:
        sync.step()
    assert "secret" not in str(raised.value)


def test_a_wrong_password_is_reported_and_not_waited_for(shop, postgres):
    wrong = Postgres(postgres.url.replace(postgres.password, "wrong-one"))
    with Sync(shop, wrong.open()) as sync, pytest.raises(IndexRefused, match="password authentication failed"):
        sync.syncer.follow(threading.Event())


@pytest.fixture
def plain_user(database, postgres):
    """A database as a user sees it who may do nothing special."""
    database.execute("DROP ROLE IF EXISTS plain")
    database.execute("CREATE ROLE plain LOGIN PASSWORD 'plain'")
    database.execute("GRANT USAGE ON SCHEMA public TO plain")
    return Postgres(f"postgresql://plain:plain@{postgres.address}/postgres")


def test_a_missing_extension_is_reported_with_what_to_do(shop, plain_user):
    with Sync(shop, plain_user.open()) as sync, pytest.raises(IndexRefused, match=r"superuser run: CREATE EXTENSION"):
        sync.step()


def test_a_missing_permission_is_reported_with_what_to_grant(shop, database, plain_user):
    database.execute("CREATE EXTENSION vector")
    with Sync(shop, plain_user.open()) as sync, pytest.raises(IndexRefused, match="GRANT USAGE, CREATE ON SCHEMA"):
        sync.step()
    database.execute("GRANT CREATE ON SCHEMA public TO plain")
    with Sync(shop, plain_user.open()) as sync:
        sync.step()
    assert plain_user.read().version == 20


def test_rights_on_the_view_survive_a_wider_one(shop, database, plain_user, tmp_path):
    with Sync(shop, database.open()) as sync:
        sync.step()
        database.execute(f"GRANT SELECT ON {NAME} TO plain")
        # A reader needs no right on the tables below the view.
        assert plain_user.read().version == 20
        widen(shop, tmp_path / "wide")
        version = shop.publish()
        sync.step()
    assert plain_user.read().version == version


def test_a_role_without_a_schema_is_reported_with_what_to_grant(shop, database, plain_user):
    database.execute("REVOKE USAGE ON SCHEMA public FROM plain")
    with Sync(shop, plain_user.open()) as sync, pytest.raises(IndexRefused, match="may use no schema"):
        sync.step()


def test_more_numbers_than_an_index_takes_are_refused_before_any_write(shop, database):
    index = database.open()
    with pytest.raises(IndexRefused, match=r"2,016 numbers, pgvector takes at most 2,000: use --index none"):
        index.draft(2016)
    index.close()
    without = PostgresIndex(database.address, NAME, approximate=False)
    assert without.draft(2016).embedding.shape == (0, 2016)
    without.close()


@pytest.mark.parametrize("attributes", [{"maker": "a\0b"}, {"\0": True}, {"tags": ["x", "\0"]}], ids=str)
def test_a_text_that_postgresql_cannot_hold_is_refused_with_its_item(shop, database, attributes):
    """JSON can say the character U+0000."""
    table = Attributes([json.dumps({"id": "i3", **attributes}).encode()], "test")
    with Sync(shop, database.open(), table) as sync, pytest.raises(IndexRefused, match=r"item 'i3': .*U[+]0000"):
        sync.step()


def test_a_table_that_omdml_did_not_make_is_left_alone(shop, database):
    database.execute(f"CREATE TABLE {NAME} (id int)")
    with Sync(shop, database.open()) as sync, pytest.raises(IndexRefused, match="that omdml did not make"):
        sync.step()
    assert database.execute(f"SELECT count(*) FROM {NAME}") == [(0,)]


def test_a_lost_session_leaves_readers_what_they_had(shop, database):
    with Sync(shop, database.open()) as sync:
        sync.step()
        shop.learn(40)
        shop.publish()
        write = sync.index.write

        def write_and_lose_the_session(rows):
            write(rows)
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'omdml sync'"
            )

        sync.index.write = write_and_lose_the_session
        with pytest.raises(IndexAway):
            sync.step()
        assert database.read().version == 20
        sync.index.write = write
        sync.step()
    assert database.read().version == 60
