"""What kafka-python's public interface lacks: each test fails once it has it, and then streams/kafka/internals.py can
do without a function."""

from __future__ import annotations

import ast
import gc
import inspect
import logging
import os
import re
import threading

import kafka.errors
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.consumer import fetcher
from kafka.coordinator.base import BaseCoordinator
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.coordinator.heartbeat import Heartbeat
from kafka.future import Future
from kafka.net.transport import KafkaTCPTransport
from kafka.producer.future import FutureRecordMetadata
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords

from deploy.local.ports import free_port
from omdml.streams.kafka import internals
from omdml.streams.kafka.reading.batches import PolledRecord
from tests.support.processes import ROOT
from tests.support.servers.kafka_batches import FIRST, RECORDS, Name, sealed, written

PUBLIC = [name for name in dir(KafkaConsumer) if not name.startswith("_")]
# What the documentation of kafka-python names. Its assignors and partitioners are values of options.
DOCUMENTED = {"kafka", "kafka.admin", "kafka.errors", "kafka.structs"}
DOCUMENTED |= {"kafka.coordinator.assignors.cooperative_sticky", "kafka.partitioner.abc", "kafka.partitioner.default"}
# Objects whose private members are our own.
OUR_OWN = {"self", "super()"}


def parameters(method):
    return set(inspect.signature(method).parameters)


def inside(path):
    """The modules of kafka-python that a file imports and that are not documented, and private members that it uses."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and re.match("_(?!_)", node.attr):
            if "kafka" in path.parts and ast.unparse(node.value) not in OUR_OWN:
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] == "kafka" and node.module not in DOCUMENTED:
                yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names
                        if alias.name.split(".")[0] == "kafka" and alias.name not in DOCUMENTED)  # fmt: skip


def test_nothing_else_of_ours_reaches_inside_the_client():
    files = [path for layer in ("streams", "workers") for path in sorted((ROOT / layer).rglob("*.py"))]
    assert {path.name for path in files if list(inside(path))} == {"internals.py", "record_batch.py"}


def open_files_and_threads():
    """How many files and threads this process has."""
    # A connection that was refused is closed by the garbage collector.
    gc.collect()
    return len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.parametrize("kind", [KafkaAdminClient, KafkaConsumer, KafkaProducer])
def test_a_client_that_cannot_be_made_leaks_unless_we_close_what_it_opened(kind, monkeypatch):
    # Lines of the log that pytest keeps hold the connections that they are about.
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    away = {"bootstrap_servers": f"127.0.0.1:{free_port()}", "bootstrap_timeout_ms": 100}
    before = open_files_and_threads()
    with pytest.raises(kafka.errors.KafkaTimeoutError):
        internals.make_client(kind, **away)
    ours, threads = open_files_and_threads()
    assert threads == before[1]
    with pytest.raises(kafka.errors.KafkaTimeoutError) as refusal:
        kind(**away)
    # Older versions of the client keep the connection that was refused.
    assert open_files_and_threads()[0] - ours > ours - before[0], refusal


def test_the_clients_batches_refuse_header_names_that_are_not_utf_8():
    batch = DefaultRecordBatch(bytearray(sealed(written([(Name(), b"x")]))))
    with pytest.raises(kafka.errors.CorruptRecordError) as refused:
        list(batch)
    assert isinstance(refused.value.__context__, UnicodeDecodeError)


def test_the_clients_batches_have_no_limit_to_what_is_decompressed():
    assert parameters(DefaultRecordBatch.__init__) == {"self", "buffer"}
    assert parameters(MemoryRecords.__init__) == {"self", "bytes_data"}


def test_the_clients_error_of_a_damaged_batch_names_no_partition_or_offset():
    data = written([])
    # This byte is the first record's length.
    data[RECORDS] ^= 0xFF
    with pytest.raises(kafka.errors.CorruptRecordError) as refused:
        list(DefaultRecordBatch(bytearray(sealed(data))))
    assert not {"partition", "topic_partition", "offset"} & set(dir(refused.value))
    assert str(FIRST) not in str(refused.value)


def test_a_consumer_neither_tells_nor_takes_an_epoch_of_a_position():
    assert parameters(KafkaConsumer.seek) == {"self", "partition", "offset"}
    assert parameters(KafkaConsumer.position) == {"self", "partition", "timeout_ms"}


def test_a_consumer_has_no_look_for_added_partitions_and_no_topic_identity():
    assert not [name for name in PUBLIC if re.search("metadata_update|request_update|refresh|topic_id", name)]


def test_a_consumer_tells_nobody_that_its_group_shares_out_partitions():
    assert not [name for name in PUBLIC if re.search("join|rebalanc", name)]


def test_a_consumer_cannot_be_told_to_share_out_partitions_again():
    assert not [name for name in dir(KafkaConsumer) if re.match("[^_].*(rebalance|rejoin)", name)]


def test_a_consumer_does_not_need_to_join_again_because_it_was_interrupted():
    kinds = [kind for kind in ConsumerCoordinator.__mro__ if "need_rejoin" in vars(kind)]
    assert kinds
    assert not [kind for kind in kinds if re.search(r"rejoining\b|_join_task", inspect.getsource(kind.need_rejoin))]


def test_a_consumer_throws_away_an_answer_to_a_join_that_comes_between_polls():
    kinds = [kind for kind in ConsumerCoordinator.__mro__ if "join_group_async" in vars(kind)]
    assert any("self._join_task.is_done:" in inspect.getsource(kind.join_group_async) for kind in kinds)


def test_the_clients_poll_does_not_wait_while_a_heartbeat_is_overdue():
    assert "self._coordinator.time_to_next_poll()" in inspect.getsource(KafkaConsumer._poll_once)
    assert Heartbeat(heartbeat_interval_ms=0).time_to_next_heartbeat() == 0


def test_the_clients_poll_may_sleep_although_records_came_after_its_look():
    steps = inspect.getsource(fetcher.Fetcher.fetch_records)
    looks, asks, is_idle = (steps.index(step) for step in ("= self.fetched_records(", "self.send_fetches()", ", True"))
    assert looks < asks < is_idle
    # If no fetch is on its way, it says that it is idle, and does not ask whether one was answered since it looked.
    assert "_completed_fetches" not in steps


def test_each_step_of_the_clients_poll_waits_for_its_thread():
    for waits in (
        BaseCoordinator.ensure_coordinator_ready,
        fetcher.Fetcher.send_fetches,
        fetcher.Fetcher.fetch_records,
    ):
        assert re.search(r"\.(_net|_manager)\.run\(", inspect.getsource(waits))


class ClientOnCallersThread:
    """Stands for a consumer, its fetcher and its coordinator. It counts how often a caller waits for their thread."""

    def __init__(self, on_their_way=(), answered=()):
        self.waits, self.sent, self.coordinator_id, self.nodes = 0, 0, "coordinator-1", {"coordinator-1"}
        self._fetch_futures, self._completed_fetches = list(on_their_way), list(answered)
        self._coordinator = self._fetcher = self._client = self._manager = self

    def connected(self, node):
        return node in self.nodes

    def ensure_coordinator_ready(self, timeout_ms=None):
        self.waits += 1
        return False

    def fetched_records(self, max_records, update_offsets):
        records = {number: [number] for number in self._completed_fetches[:max_records]}
        del self._completed_fetches[:max_records]
        return records, bool(self._completed_fetches)

    def send_fetches(self):
        return self.run(self._send_fetches_async)

    async def _send_fetches_async(self):
        self.sent += 1

    async def wait_for(self, future, timeout_ms):
        assert not future.is_done
        # An answer comes.
        self._completed_fetches.append(7)
        self._fetch_futures.pop().success(None)
        assert future.is_done

    def run(self, coroutine, *arguments):
        self.waits += 1
        with pytest.raises(StopIteration) as end:
            coroutine(*arguments).send(None)
        return end.value.value


def poll(client):
    """Poll once. Returns whether the coordinator is ready, the records, and whether the poll is idle."""
    internals.wait_once(client)
    return client.ensure_coordinator_ready(timeout_ms=1), *client.fetch_records(2, update_offsets=True, timeout_ms=1)


def test_a_poll_of_ours_waits_once_until_a_fetch_is_answered():
    client = ClientOnCallersThread(on_their_way=[Future()])
    assert poll(client) == (True, {7: [7]}, False)
    assert (client.waits, client.sent) == (1, 1)


def test_a_poll_of_ours_fetches_more_only_once_all_is_handed_out():
    client = ClientOnCallersThread(answered=[1, 2, 3])
    assert poll(client) == (True, {1: [1], 2: [2]}, False)
    assert (client.waits, client.sent) == (0, 0)
    assert client.fetch_records(2, update_offsets=True, timeout_ms=1) == ({3: [3]}, False)
    assert (client.waits, client.sent) == (1, 1)


def test_a_poll_of_ours_is_idle_only_without_fetches_and_records():
    assert poll(ClientOnCallersThread()) == (True, {}, True)
    client = ClientOnCallersThread()

    async def answer_at_once():
        client._completed_fetches.append(5)

    client._send_fetches_async = answer_at_once
    assert poll(client) == (True, {5: [5]}, False)


@pytest.mark.parametrize("change", [{"coordinator_id": None}, {"nodes": set()}])
def test_a_poll_of_ours_asks_for_the_coordinator_if_it_is_not_there(change):
    client = ClientOnCallersThread()
    vars(client).update(change)
    assert poll(client)[0] is False


def test_a_consumer_keeps_to_itself_that_a_heartbeat_met_another_of_its_name():
    body = inspect.getsource(ConsumerCoordinator._do_heartbeat)
    assert re.search(
        r"FencedInstanceIdError\):\s+heartbeat_log.error\(.*\s.*\s+self._disable_heartbeat\(\)\s+else", body
    )
    assert not [name for name in PUBLIC if re.search("fence|heartbeat", name)]


def test_a_consumer_cannot_be_told_to_forget_answers_that_came_too_late():
    assert parameters(KafkaConsumer.committed) == {"self", "partition", "metadata", "timeout_ms"}


def test_a_producer_looks_sizes_up_for_each_record_and_cannot_be_told_not_to():
    source = inspect.getsource(KafkaProducer.send)
    assert "self._estimate_size_in_bytes(" in source
    assert parameters(KafkaProducer.send) == {
        "self", "topic", "value", "key", "headers", "partition", "timestamp_ms"
    }  # fmt: skip


def test_a_record_on_its_way_does_not_tell_its_partition():
    assert not [name for name in dir(FutureRecordMetadata) if re.match("[^_].*(partition|topic)", name)]


@pytest.mark.parametrize(
    "step", ["init_transactions", "commit_transaction", "abort_transaction", "send_offsets_to_transaction"]
)
def test_a_step_of_a_transaction_waits_without_a_limit(step):
    assert not [name for name in parameters(getattr(KafkaProducer, step)) if "timeout" in name]


def test_a_flush_does_not_say_which_records_failed():
    assert not re.search(r"^ +return \w", inspect.getsource(KafkaProducer.flush), re.MULTILINE)


def test_a_producer_is_closed_only_after_everything_on_its_way_was_waited_for():
    source = inspect.getsource(KafkaProducer.close)
    assert source.index("self.flush(timeout)") < source.index("force_close")


def test_the_clients_transports_lose_what_comes_with_the_end_of_a_connection():
    source = inspect.getsource(KafkaTCPTransport._read_from_sock)
    assert source.index("return self.abort(error=err)") < source.index("data_received(recvd_data)")


def test_the_clients_records_are_named_tuples_with_the_members_of_ours():
    # Its own class is replaced when ours is loaded.
    theirs = re.search(
        r"^ConsumerRecord = collections.namedtuple\(.*?\[(.*?)\]", inspect.getsource(fetcher), re.M | re.S
    )
    assert theirs
    assert tuple(re.findall(r'"(\w+)"', theirs[1])) == PolledRecord.__struct_fields__
