"""Connection options and the watch over a Kafka source; no broker is needed."""

import kafka.errors
import msgspec
import pytest
from kafka import TopicPartition

from omdml.errors import SourceError
from streams.kafka.options import KafkaOptions, connecting, translated
from streams.kafka.watch import STUCK_LOOKS, Flow

SECRET = KafkaOptions(
    servers="one:9092, two:9092",
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-256",
    sasl_plain_username="learner",
    sasl_plain_password="hunter2",
)
HERE = TopicPartition("clicks", 0)


def test_passwords_show_neither_in_the_options_nor_in_an_error() -> None:
    assert "hunter2" not in repr(SECRET)
    assert "hunter2" not in str(SECRET)
    with pytest.raises(SourceError) as caught, translated(SECRET, "connecting"):
        raise kafka.errors.KafkaError("no user learner with hunter2")
    assert "hunter2" not in str(caught.value)
    assert "one:9092" in str(caught.value)


def test_the_client_gets_every_server_and_the_credentials() -> None:
    arguments = SECRET.client()
    assert arguments["bootstrap_servers"] == ["one:9092", "two:9092"]
    assert arguments["sasl_plain_password"] == "hunter2"


def test_options_come_from_a_configuration_and_refuse_what_they_do_not_know() -> None:
    options = msgspec.convert({"servers": "one:9092", "security_protocol": "SSL"}, KafkaOptions)
    assert options.security_protocol == "SSL"
    for wrong in ({"security_protocol": "TLS"}, {"sasl_password": "x"}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, KafkaOptions)


def test_refused_credentials_say_what_to_check() -> None:
    with pytest.raises(SourceError, match=r"correct log\.sasl_plain_username"), translated(SECRET, "reading"):
        raise kafka.errors.SaslAuthenticationFailedError("refused")


def test_a_certificate_file_that_is_not_there_is_a_source_error() -> None:
    with pytest.raises(SourceError, match=r"FileNotFoundError.*no-such\.pem"), connecting(SECRET):
        raise FileNotFoundError("no-such.pem")


def test_a_partition_that_stands_still_behind_its_end_while_nothing_comes_is_stuck() -> None:
    flow = Flow()
    assert [flow.look({HERE: (5, 9)}) for _ in range(STUCK_LOOKS + 1)] == [[]] * STUCK_LOOKS + [[HERE]]


def test_a_partition_that_moves_or_is_at_its_end_is_not_stuck() -> None:
    flow = Flow()
    for position in range(3 * STUCK_LOOKS):
        assert flow.look({HERE: (position, 1000), TopicPartition("clicks", 1): (7, 7)}) == []


def test_a_partition_that_waits_while_others_deliver_is_not_stuck() -> None:
    flow = Flow()
    for _ in range(3 * STUCK_LOOKS):
        assert flow.look({HERE: (5, 9)}) == []
        flow.delivered()
