"""Options of a connection to Kafka, and errors that name no password; no broker is needed."""

import kafka.errors
import msgspec
import pytest

from omdml.errors import SourceError, SourceRefused
from omdml.streams.kafka.options import KafkaOptions, connecting, translated

SECRET = KafkaOptions(
    servers="one:9092, two:9092",
    security_protocol="SASL_SSL",
    sasl_mechanism="SCRAM-SHA-256",
    sasl_plain_username="learner",
    sasl_plain_password="hunter2",
)


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


def test_a_session_that_brokers_refuse_names_the_option_and_their_limits() -> None:
    expected = r"log\.session_timeout_s.*group\.min\.session\.timeout\.ms"
    with pytest.raises(SourceRefused, match=expected), translated(SECRET, "reading"):
        raise kafka.errors.InvalidSessionTimeoutError


def test_a_certificate_file_that_is_not_there_is_a_source_error() -> None:
    with pytest.raises(SourceError, match=r"FileNotFoundError.*no-such\.pem"), connecting(SECRET):
        raise FileNotFoundError("no-such.pem")
