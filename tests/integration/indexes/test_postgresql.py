"""``omdml sync`` into a real PostgreSQL: concurrent readers, kills, outages, and what it refuses."""

from __future__ import annotations

import threading
import time

import httpx
import numpy as np
import psycopg
import pytest

from omdml.errors import ConfigurationError
from omdml.streams.indexes.postgresql import PostgresIndex
from omdml.streams.protocols.index import IndexAway, IndexRefused
from omdml.workers.wiring.indexes import open_index
from tests.support.exports import error
from tests.support.forks import ForkedProcess
from tests.support.indexes import NAME, Postgres, Sync, widen
from tests.support.nodes import CONFIGURATION, stored_shop
from tests.support.processes import free_port, wait_for
from tests.support.shops import Shop
from tests.support.worlds import ITEMS


@pytest.fixture
def database(postgres):
    return Postgres(postgres.url)


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    shop.publish()
    return shop


@pytest.fixture
def installed(tmp_path):
    shop = stored_shop(tmp_path)
    (tmp_path / "omdml.toml").write_text(CONFIGURATION.format(port=1))
    return shop


def start(folder, database, *arguments, name="sync"):
    return ForkedProcess(
        folder,
        "sync",
        "shop",
        "--moved",
        "0.05",
        *arguments,
        name=name,
        environment={"OMDML_SYNC_TO": database.address},
    )


def of_one_version(shop, answers):
    """Whether the rows of each answer lie where the version that they name embeds them, but for the bound."""
    different = {(rows[0][2], vectors_of(rows)): rows for rows in answers}
    return all(as_the_version_has_it(shop, rows) for rows in different.values())


def vectors_of(rows):
    """The vectors of an answer, in the order of their ids."""
    return b"".join(row[1].to_numpy().tobytes() for row in sorted(rows, key=lambda row: row[0]))


def as_the_version_has_it(shop, rows):
    (version,) = {row[2] for row in rows}
    vectors = {row[0]: row[1].to_numpy() for row in rows}
    assert len(vectors) == ITEMS
    return error(shop, vectors, version) <= 0.1


class Reader(threading.Thread):
    """Reads all rows again and again, in statements of their own or in pairs in one transaction."""

    def __init__(self, database, transactions=False) -> None:
        super().__init__()
        self.answers, self.failed, self.ended = [], None, threading.Event()
        self._database, self._transactions = database, transactions

    def run(self):
        try:
            with self._database.reader() as connection:
                # A reader that never rests would leave the writer no time on a small machine.
                while not self.ended.wait(0.02):
                    if not self._transactions:
                        self.answers.append(self._read(connection))
                        continue
                    with connection.transaction():
                        self.answers += [self._read(connection), self._read(connection)]
        except BaseException as error:
            self.failed = error

    def sees(self, version):
        """Whether the last answer was of this version; fails if reading failed."""
        assert self.failed is None, self.failed
        return bool(self.answers) and self.answers[-1][0][2] == version

    def _read(self, connection):
        return connection.execute(f"SELECT id, embedding, version FROM {NAME}").fetchall()


@pytest.mark.parametrize("transactions", [False, True])
def test_a_reader_never_sees_two_versions_in_one_answer(shop, database, transactions):
    with Sync(shop, database.open()) as sync:
        sync.step()
        reader = Reader(database, transactions)
        reader.start()
        for _ in range(8):
            shop.learn(10)
            version = shop.publish()
            sync.step()
            wait_for(lambda version=version: reader.sees(version), "the reader to see the version")
        reader.ended.set()
        reader.join()
    assert reader.failed is None
    assert of_one_version(shop, reader.answers)
    if transactions:
        pairs = zip(reader.answers[::2], reader.answers[1::2], strict=True)
        # The rows stay as they are while a transaction uses the view; a version that moved none may be noted.
        assert all(vectors_of(one) == vectors_of(other) for one, other in pairs)


def test_a_transaction_older_than_the_switch_is_told_so(shop, database):
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
    monkeypatch.setattr("omdml.streams.indexes.postgresql.SWITCH_TRIES", 2)
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


def test_a_killed_sync_is_gone_on_with_and_readers_never_notice(installed, database, tmp_path):
    draw = np.random.default_rng(0)
    with Sync(installed, database.open()) as sync:
        sync.step()
    reader = Reader(database)
    reader.start()
    for number in range(2):
        installed.learn(30)
        version = installed.publish()
        process = start(tmp_path, database, "--follow", "--rows-per-second", "200", name=f"sync-{number}")
        wait_for(lambda name=f"sync-{number}": "sync_writing" in (tmp_path / f"{name}.log").read_text(), "it to write",
                 60, process)  # fmt: skip
        # Somewhere among the batches of 120 rows.
        time.sleep(draw.uniform(0, 0.6))
        process.kill()
        process.close()
    last = start(tmp_path, database, "--follow", name="last")
    wait_for(lambda: "sync_current" in last.said, "the newest version", 60, last)
    assert last.stop() == 0
    assert database.read().version == version
    reader.ended.set()
    reader.join()
    assert reader.failed is None
    assert of_one_version(installed, reader.answers)
    assert error(installed, database.read().vectors, version) <= 0.1


def test_writes_are_throttled(shop, database):
    with Sync(shop, database.open(), rows_per_second=100) as sync:
        begun = time.monotonic()
        sync.step()
        # 120 rows in batches of 50: the last one begins a second after the first.
        assert time.monotonic() - begun >= 1.0


def test_the_daemon_tells_how_it_is(installed, database, tmp_path):
    port = free_port()
    process = start(tmp_path, database, "--follow", "--bind", f"127.0.0.1:{port}")

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
    assert database.address not in process.said


def test_a_database_that_goes_in_the_middle_is_waited_for(installed, database, postgres, tmp_path):
    process = start(tmp_path, database, "--follow", "--rows-per-second", "100")
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
    without = PostgresIndex(database.address, NAME, hnsw=False)
    assert without.draft(2016).embedding.shape == (0, 2016)
    without.close()


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


def test_the_command_ends_with_what_it_did(installed, database, tmp_path):
    process = start(tmp_path, database)
    assert process.wait() == 0
    assert "version 0, serial 1: 120 rows written, 0 removed, 120 items of 16 numbers" in process.said
    with pytest.raises(ConfigurationError, match="expected postgresql://USER@HOST/DATABASE") as raised:
        open_index("mysql://me:secret@host/shop", None, "shop", "hnsw")
    assert "secret" not in str(raised.value)
