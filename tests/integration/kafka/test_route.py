"""Routers on a real broker: what a copy carries, foreign keys, what is refused; and what a transaction promises."""

from __future__ import annotations

import time

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import MemberToRemove
from kafka.future import Future
from prometheus_client import CollectorRegistry

from omdml.errors import SourceError, SourceRefused
from omdml.feedback import MESSAGEPACK, Triplet, encode
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.routing.beginning import decide_beginning
from omdml.streams.kafka.routing.origin import RoutedSource
from omdml.streams.kafka.routing.router import Router, Targets
from omdml.streams.kafka.routing.transaction import KafkaTransactions
from omdml.streams.letters import Letter
from omdml.workers.cli import main
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.router.condition import condition
from omdml.workers.router.metrics import RouterMetrics
from omdml.workers.router.model_key import key_of
from omdml.workers.wiring.router import build_router
from tests.support.processes import wait_for
from tests.support.servers.routes import PARTITIONS, Route, read_committed


@pytest.fixture
def route(tmp_path, kafka, new_topic):
    with Route(tmp_path, kafka, new_topic) as route:
        yield route


@pytest.mark.parametrize("partitioner", ["murmur2", "crc32"])
def test_two_routers_share_what_foreign_senders_write(tmp_path, kafka, new_topic, partitioner):
    # Given events without keys, and with keys that are no models, and two routers
    with Route(tmp_path, kafka, new_topic, partitioner) as route:
        route.send(500)
        route.send(500, keys=lambda model: f"session of {model}".encode())
        routers = [route.router(name) for name in ("one", "two")]
        try:
            wait_for(lambda: all("assigned" in router.said for router in routers), "both to have partitions", 60)
            route.send(500)
            route.wait(*routers)
            # If both end, I expect each event once, keyed, where the configured partitioner says.
            assert [router.stop() for router in routers] == [0, 0], [router.said for router in routers]
            route.check()
        finally:
            for router in routers:
                router.close()


def test_a_router_whose_topic_is_gone_ends_and_says_so(route, kafka):
    # Given a router that has copied something, and its topic deleted
    route.send(20)
    router = route.router()
    try:
        route.wait(router)
        kafka.delete_topic(route.origin)
        # I expect it to end, and to name the topic.
        assert router.wait(90) == 3
        assert f"topic '{route.origin}' is missing from Kafka at" in router.said
    finally:
        router.close()


def test_a_copy_carries_headers_and_time_and_what_cannot_be_keyed_has_one_fate(route, kafka, new_topic):
    # Given a target that takes small messages and keeps the senders' times, and events of every kind
    route.target = new_topic(PARTITIONS, {"max.message.bytes": "20000", "message.timestamp.type": "CreateTime"})
    file = route.folder / "omdml.toml"
    file.write_text(f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{route.target}"\n')
    good = encode(Triplet(model="shop", query="a", relevant="b", irrelevant="c"), MESSAGEPACK)
    headers = [("content-type", MESSAGEPACK.encode()), ("trace", b"\x00\xff")]
    then = int(time.time() * 1000) - 3_600_000
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    producer.send(route.origin, good, headers=headers, timestamp_ms=then, partition=0)
    producer.send(route.origin, b"no event", key=b"shop", partition=0, timestamp_ms=then)
    producer.send(route.origin, None, key=b"a tombstone", partition=0)
    large = producer.send(route.origin, b'{"model":"shop"}' + b" " * 20_000, partition=1).get(10)
    producer.flush()
    producer.close()
    router = route.router()
    wait_for(lambda: len(read_committed(kafka, route.target, PARTITIONS)) == 3, "three copies", 60, router)
    assert router.stop() == 0, router.said
    # I expect three copies, and one letter that gives the position of the large one.
    copies = {record.value: record for record in read_committed(kafka, route.target, PARTITIONS)}
    assert len(read_committed(kafka, route.target, PARTITIONS)) == 3
    assert (copies[good].key, list(copies[good].headers), copies[good].timestamp) == (b"shop", headers, then)
    assert (copies[b"no event"].key, copies[b"no event"].timestamp) == (None, then)
    assert copies[b""].key is None
    (record,) = read_committed(kafka, f"{route.target}.letters")
    letter = Letter.decode(record.value)
    assert (letter.partition.number, letter.offset, letter.reason) == (1, large.offset, "oversize")


def test_a_router_without_its_topics_says_what_to_do(tmp_path, kafka, new_topic):
    good, compacted = new_topic(), new_topic(configs={"cleanup.policy": "compact"})
    refused = {
        ("clicks-nobody-made", good): (1, "has no topic 'clicks-nobody-made': correct --from"),
        (good, "feedback-nobody-made"): (1, "has no topic 'feedback-nobody-made'. Create it: omdml topics create"),
        (good, good): (2, "is log.topic itself: expected the topic that unkeyed events come by"),
        (f"{good}.letters", good): (2, "is the topic of the dead letters itself"),
        (compacted, good): (3, "has cleanup.policy=compact"),
        (good, compacted): (3, "has cleanup.policy=compact"),
    }
    for (origin, target), (code, says) in refused.items():
        (tmp_path / "omdml.toml").write_text(
            f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{target}"\n'
        )
        answer = CliRunner().invoke(main, ["route", "--from", origin, "-c", str(tmp_path / "omdml.toml")])
        assert (answer.exit_code, says in answer.output) == (code, True), answer.output


def test_a_router_of_a_file_log_is_refused(tmp_path):
    (tmp_path / "omdml.toml").write_text(f'[log]\nkind = "file"\npath = "{tmp_path}/log"\n')
    answer = CliRunner().invoke(main, ["route", "--from", "clicks", "-c", str(tmp_path / "omdml.toml")])
    assert (answer.exit_code, "log.kind is 'file'" in answer.output) == (2, True), answer.output


def test_a_transaction_with_a_record_that_ran_out_of_time_is_not_committed(kafka, new_topic):
    # Given a transaction of two records, of which the client gives one up
    events_topic, marks_topic = new_topic(), new_topic()
    transactions = KafkaTransactions(KafkaOptions(servers=kafka.servers), f"letters-{events_topic}")

    def send_both():
        with transactions:
            transactions.send(events_topic, b"event", "shop")
            transactions.send(marks_topic, b"mark", "shop")
            (batch,) = transactions._producer._accumulator._batches[TopicPartition(events_topic, 0)]
            batch.created -= 1000.0

    # I expect an error, and neither of them.
    with pytest.raises(SourceError):
        send_both()
    transactions.drop()
    KafkaTransactions(KafkaOptions(servers=kafka.servers), f"letters-{events_topic}").close()
    assert (read_committed(kafka, events_topic), read_committed(kafka, marks_topic)) == ([], [])


@pytest.mark.parametrize("noticed", [False, True])
def test_a_router_that_is_out_of_its_group_writes_nothing(kafka, new_topic, noticed):
    # Given a router that gathered events, and was then put out of its group; another one takes them
    origin, target, letters = new_topic(), new_topic(), new_topic()
    options, name = KafkaOptions(servers=kafka.servers), f"route-{origin}"
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    producer.send(origin, encode(Triplet(model="shop", query="a", relevant="b", irrelevant="c")))
    producer.close()

    decide_beginning(options, origin, target, name, None)

    def router(number):
        source = RoutedSource(options, topic=origin, group=name)
        metrics = RouterMetrics(CollectorRegistry())
        router = Router(
            source, Targets(target, letters), key_of, metrics, name=f"{name}.{number}", partitioner="murmur2"
        )
        source.subscribe(router)
        router._connect()
        return router

    def gathered(router):
        router._gather()
        return router._gathered

    first = second = router(1)
    try:
        wait_for(lambda: gathered(first), "the first to have gathered")
        member = first.source.member
        admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
        admin.remove_group_members(name, [MemberToRemove(member_id=member.member_id, group_instance_id=None)])
        admin.close()
        second = router(2)
        wait_for(lambda: gathered(second), "the second to have gathered")
        second._route()
        if noticed:
            wait_for(lambda: first.source._consumer.group_metadata().generation_id < 0, "it to notice")
        # If the first goes on, I expect that it is refused, and the event once.
        with pytest.raises(SourceError):
            first._route()
        assert len(read_committed(kafka, target)) == 1
    finally:
        first._close()
        second._close()


def test_a_router_goes_back_to_the_offsets_of_now(kafka, new_topic):
    # Given a router that routed an event, whose client has an older answer: that nothing was committed yet
    origin, target, letters = new_topic(), new_topic(), new_topic()
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    producer.send(origin, encode(Triplet(model="shop", query="a", relevant="b", irrelevant="c")))
    producer.close()
    options = KafkaOptions(servers=kafka.servers)
    decide_beginning(options, origin, target, f"route-{origin}", None)
    source = RoutedSource(options, topic=origin, group=f"route-{origin}")
    metrics = RouterMetrics(CollectorRegistry())
    router = Router(source, Targets(target, letters), key_of, metrics, name=origin, partitioner="murmur2")
    source.subscribe(router)
    try:
        wait_for(lambda: router._turn() or read_committed(kafka, target), "the event to be routed")
        asked = source._consumer._coordinator._offset_fetch_futures
        asked[frozenset([TopicPartition(origin, 0)])] = Future().success({})
        # If it goes back, I expect it to go on behind the event.
        source.go_back()
        (position,) = source.progress().values()
        assert position == (1, 1)
    finally:
        router._close()


def test_a_router_with_nothing_to_route_says_that_kafka_does_not_answer(kafka, new_topic):
    # Given a router that has routed an event, and so has nothing left
    origin, target = new_topic(), new_topic()
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    producer.send(origin, encode(Triplet(model="shop", query="a", relevant="b", irrelevant="c")))
    producer.close()
    registry = CollectorRegistry()
    router = build_router(KafkaLog(servers=kafka.servers, topic=target), origin, registry, accept_gap=False)
    router.source.subscribe(router)

    def turned(waits):
        router.turned_at = time.monotonic()
        router._turn()
        return registry.get_sample_value("omdml_route_waiting") == waits == (not condition(router, target).ready)

    try:
        wait_for(lambda: turned(False) and read_committed(kafka, target), "the event to be routed")
        # While its broker stands still, I expect that metrics and probes say so, and afterwards that it goes on.
        kafka.pause()
        wait_for(lambda: turned(True), "the router to notice", 60)
        kafka.resume()
        wait_for(lambda: turned(False), "the router to go on", 60)
    finally:
        kafka.resume()
        router._close()


def refused(router):
    """The output of a router that ends by itself."""
    assert router.wait(60) == 3, router.said
    return " ".join(router.said.split())


def test_routers_that_kafka_forgot_wait_for_an_operator_and_route_nothing_again(route):
    # Given events that were routed, a router that ended, and a cluster that keeps no offsets of it any more
    route.send(100)
    router = route.router()
    route.wait(router)
    assert router.stop() == 0, router.said
    route.forget()
    output = refused(route.router())
    assert "keeps no offsets of group" in output
    for way in ("--begin beginning", "--begin end", f"--group {route.group} --topic {route.origin} --reset-offsets"):
        assert way in output
    route.check()
    # If one is started with --begin end, I expect the next one to know its position without this option.
    router = route.router(options=("--begin", "end"))
    wait_for(lambda: "assigned" in router.said, "it to have partitions", 60, router)
    route.send(50)
    route.wait(router)
    assert router.stop() == 0, router.said
    router = route.router()
    route.send(50)
    route.wait(router)
    assert router.stop() == 0, router.said
    route.check()


def test_routers_that_kafka_forgot_as_they_run_stop(route, kafka):
    # Given a running router, and an operator who removes the offsets of its group by force
    route.send(10)
    router = route.router()
    route.wait(router)
    router.kill()
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    wait_for(lambda: not admin.describe_groups([route.group])[route.group]["members"], "the group to be empty", 60)
    route.forget()
    admin.close()
    source = RoutedSource(KafkaOptions(servers=kafka.servers), topic=route.origin, group=route.group)
    targets = Targets(route.target, f"{route.target}.letters")
    router = Router(
        source, targets, key_of, RouterMetrics(CollectorRegistry()), name=route.origin, partitioner="murmur2"
    )
    source.subscribe(router)
    try:
        with pytest.raises(SourceRefused, match="keeps no offsets of group"):
            wait_for(router._turn, "nothing")
    finally:
        router._close()
    route.check()


def test_a_gap_before_a_router_names_the_command_that_goes_on_behind_it(route, kafka):
    # Given events that were deleted before they were routed
    route.send(50)
    router = route.router()
    route.wait(router)
    assert router.stop() == 0, router.said
    route.send(50)
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    admin.delete_records({TopicPartition(route.origin, number): -1 for number in range(PARTITIONS)})
    admin.close()
    assert f"`omdml route --from {route.origin} --accept-gap` goes on without them" in refused(route.router())
    # If it is called like that, I expect it to go on with what comes.
    router = route.router(options=("--accept-gap",))
    wait_for(lambda: "gap_accepted" in router.said, "the gap to be accepted", 60, router)
    before = len(route.read())
    route.send(50)
    wait_for(lambda: len(route.read()) == before + 50, "what comes to be routed", 60, router)
    assert router.stop() == 0, router.said


def test_the_first_router_into_a_topic_of_others_asks_where_to_begin(route, kafka):
    # Given events to be routed, and some that came by another way
    route.send(100)
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    producer.send(route.target, encode(Triplet(model="shop", query="a", relevant="b", irrelevant="c")), key=b"shop")
    producer.close()
    assert "keeps no offsets of group" in refused(route.router())
    router = route.router(options=("--begin", "beginning"))
    route.wait(router)
    assert router.stop() == 0, router.said
    assert len(route.read()) == 101


def test_a_partition_that_was_added_is_routed_from_its_beginning(route, kafka):
    route.send(50)
    router = route.router()
    route.wait(router)
    assert router.stop() == 0, router.said
    # Given a partition more, with an event that came before any router saw it
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    admin.create_partitions({route.origin: PARTITIONS + 1})
    admin.close()
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    event = encode(Triplet(model="shop", query="a", relevant="b", irrelevant="c"))
    producer.send(route.origin, event, partition=PARTITIONS).get(30)
    producer.close()
    router = route.router()
    wait_for(lambda: event in {record.value for record in route.read()}, "the event to be routed", 60, router)
    assert router.stop() == 0, router.said
    assert len(route.read()) == 51
