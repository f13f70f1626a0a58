"""What the client of a Kafka source fetches before it is polled, against a real broker."""

from deploy.local import KafkaServer
from omdml.streams.kafka import internals
from tests.integration.waiting import until
from tests.support.kafka_reader import NewTopic, Open, write


def test_a_poll_tells_whether_its_records_were_fetched_before_it_began(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    write(kafka, topic, [b"first", b"second"])
    reader = open_reader(topic)
    until(lambda: reader.read(max_records=1))
    # One fetch brought both.
    assert internals.has_fetched(reader.source._consumer)
    reader.read(max_records=1)
    assert (reader.values, reader.source.fetched_before) == ([b"first", b"second"], True)
    reader.read()
    assert not reader.source.fetched_before
