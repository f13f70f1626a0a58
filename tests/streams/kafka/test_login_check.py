"""How long a cluster may take that accepts connections and answers nothing."""

from __future__ import annotations

import socket
import time

import pytest

from omdml.errors import SourceError
from omdml.streams.kafka import topic
from omdml.streams.kafka.options import KafkaOptions

LIMIT_S = 2.0


def test_an_unanswered_login_leaves_the_client_only_the_rest_of_the_time(monkeypatch):
    ends = []

    class Client(topic.KafkaAdminClient):
        def __init__(self, **options):
            ends.append(time.monotonic() + options["bootstrap_timeout_ms"] / 1000)
            super().__init__(**options)

    monkeypatch.setattr(topic, "KafkaAdminClient", Client)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = KafkaOptions(
            servers=f"127.0.0.1:{silent.getsockname()[1]}",
            start_timeout_s=LIMIT_S,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="worker",
            sasl_plain_password="secret",
        )
        began = time.monotonic()
        with pytest.raises(SourceError, match="start the broker, or correct the servers"):
            topic.look_up(options, "feedback")
    (end,) = ends
    # The look-up and the check of the login share one limit. The rest is for a busy machine.
    assert end - began < 1.5 * LIMIT_S
