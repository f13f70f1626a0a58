"""What every database under a store promises. Runs over the databases of conftest.py."""

import re
import threading
import time

import pytest

from omdml.errors import StoreError
from omdml.streams.stores.transactional.database import Database


class TestAnyDatabase:
    """The contract. A module that runs it brings ``database`` (an empty one), ``same_database`` and ``away``."""

    @pytest.mark.parametrize("value", [b"", b"\x00\xff", b"x" * 4_000_000])
    def test_a_row_holds_the_bytes_that_were_written_last(
        self, database: Database, same_database: Database, value: bytes
    ) -> None:
        for written in (b"before", value):
            with database.transaction(True) as rows:
                rows.put("group/one", "name", written)
                assert rows.get("group/one", "name") == written
        with same_database.transaction(False) as rows:
            assert rows.get("group/one", "name") == value
            assert (rows.get("group/one", "another"), rows.get("group", "one/name")) == (None, None)

    def test_a_group_has_the_names_of_its_own_rows_only(self, database: Database) -> None:
        with database.transaction(True) as rows:
            for group, name in [("a", "1"), ("a", "10"), ("a", "1/2"), ("a%2F", "3"), ("A", "4"), ("a/1", "5")]:
                rows.put(group, name, b"value")
            rows.delete("a", "10")
            rows.delete("a", "never there")
            rows.delete("nothing", "there")
        with database.transaction(False) as rows:
            assert sorted(rows.names("a")) == ["1", "1/2"]
            assert rows.names("nothing") == []

    def test_an_exception_undoes_all_that_a_transaction_wrote(self, database: Database) -> None:
        with database.transaction(True) as rows:
            rows.put("group", "changed", b"before")
            rows.put("group", "deleted", b"before")

        def write_and_fail() -> None:
            with database.transaction(True) as rows:
                rows.put("group", "changed", b"after")
                rows.put("group", "changed", b"later")
                rows.put("group", "new", b"after")
                rows.delete("group", "deleted")
                raise KeyError

        with pytest.raises(KeyError):
            write_and_fail()
        with database.transaction(False) as rows:
            assert sorted(rows.names("group")) == ["changed", "deleted"]
            assert [rows.get("group", name) for name in ("changed", "deleted")] == [b"before"] * 2

    def test_transactions_that_write_come_one_after_the_other(
        self, database: Database, same_database: Database
    ) -> None:
        def count(database: Database) -> None:
            for _ in range(50):
                with database.transaction(True) as rows:
                    before = int(rows.get("group", "count") or 0)
                    # This lets another thread run, if the transaction does not keep it out.
                    time.sleep(0)
                    rows.put("group", "count", b"%d" % (before + 1))

        threads = [threading.Thread(target=count, args=(each,)) for each in (database, same_database) * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.transaction(False) as rows:
            assert rows.get("group", "count") == b"200"

    @pytest.mark.parametrize("write", [False, True])
    def test_an_error_of_the_database_is_a_store_error_that_names_it(self, away: Database, write: bool) -> None:
        with pytest.raises(StoreError, match=re.escape(str(away))), away.transaction(write):
            pass

    def test_the_run_is_the_same_for_all_who_look(self, database: Database, same_database: Database) -> None:
        with database.transaction(True) as rows:
            rows.put("group", "name", b"value")
        assert database.run() == same_database.run() != ""

    def test_a_database_says_what_it_is(self, database: Database) -> None:
        assert database.kind
        assert database.durable in (True, False, None)
        assert str(database)
