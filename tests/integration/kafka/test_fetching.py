"""What the client of a Kafka source fetches before it is polled, against a real broker."""

from deploy.local import KafkaServer
from omdml.streams.kafka import internals
from tests.integration.waiting import until
from tests.support.kafka_reader import NewTopic, Open, write


def test_a_poll_tells_whether_its_records_were_fetched_before_it_began(
    kafka: KafkaServer, new_topic: NewTopic, open_reader: Open
) -> None:
    topic = new_topic()
    reader = open_reader(topic)
    write(kafka, topic, [b"first"])
    until(lambda: reader.read())
    # The client asked for more when it handed out the first event, so the second one reaches it without a poll.
    write(kafka, topic, [b"second"])
    until(lambda: internals.has_fetched(reader.source._consumer))
    write(kafka, topic, [b"third"])
    reader.read()
    assert (reader.values, reader.source.fetched_before) == ([b"first", b"second"], True)
    until(lambda: reader.read())
    assert reader.values == [b"first", b"second", b"third"]
