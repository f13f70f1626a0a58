"""A network that fails in the midst of a login is told from a login that is refused."""

from __future__ import annotations

import contextlib
import json
import struct

import pytest
from click.testing import CliRunner

from deploy.local import KafkaServer
from omdml.errors import SourceError, SourceRefused
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.topic import look_up
from omdml.workers.cli import main
from tests.fault.chaos.proxy import Proxy
from tests.support.servers.secured import MODULES

# One process runs them, with one broker.
pytestmark = pytest.mark.xdist_group("handshake")
# Numbers of requests in Kafka's protocol.
HANDSHAKE, AUTHENTICATE = 17, 36
LOGIN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-512",
    "sasl_plain_username": "admin",
    "sasl_plain_password": "secret",
}


class FailingProxy(Proxy):
    """A network that fails when a client sends a certain request: it swallows it, or ends the connection.

    Parameters
    ----------
    request
        The number of the request.
    ends
        Whether the connection ends. Otherwise it stays open, and nothing comes.
    failures
        How many connections it does that to; all by default.
    """

    def __init__(self, target: int, request: int, ends: bool = False, failures: float = float("inf")) -> None:
        self.request, self.ends, self.failures = request, ends, failures
        super().__init__(target)

    def _pass_on(self, sender, receiver):
        try:
            answers = sender.getpeername()[1] == self.target
        except OSError:
            # The other direction has closed the connection already.
            return
        if answers:
            super()._pass_on(sender, receiver)
            return
        with contextlib.suppress(OSError), sender.makefile("rb") as requests:
            while head := requests.read(4):
                body = requests.read(*struct.unpack(">i", head))
                if self.failures > 0 and struct.unpack(">h", body[:2]) == (self.request,):
                    self.failures -= 1
                    if self.ends:
                        break
                    continue
                receiver.sendall(head + body)
        for end in (sender, receiver):
            with contextlib.suppress(OSError):
                end.close()


@pytest.fixture(scope="module")
def broker():
    login = f'{MODULES}.scram.ScramLoginModule required username="admin" password="secret";'
    with KafkaServer(
        protocol="SASL_PLAINTEXT",
        properties={
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": login,
        },
        client_options=LOGIN,
        format_options=["--add-scram", "SCRAM-SHA-512=[name=admin,password=secret]"],
    ) as server:
        yield server


@pytest.fixture
def network(broker):
    """Makes a proxy before the broker, and answers options for clients that go through it."""
    with contextlib.ExitStack() as opened:

        def options(*failure, password="secret", start_timeout_s=60.0, **how):
            proxy = opened.enter_context(contextlib.closing(FailingProxy(broker.port, *failure, **how)))
            login = LOGIN | {"sasl_plain_password": password}
            return KafkaOptions(servers=f"127.0.0.1:{proxy.port}", start_timeout_s=start_timeout_s, **login)

        yield options


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("request_number", [HANDSHAKE, AUTHENTICATE])
def test_a_login_that_is_not_answered_is_no_refusal(network, request_number, ends):
    with pytest.raises(SourceError, match="start the broker, or correct the servers") as caught:
        look_up(network(request_number, ends=ends, start_timeout_s=2.0), "feedback")
    assert not isinstance(caught.value, SourceRefused)


@pytest.mark.parametrize("ends", [False, True])
def test_a_login_goes_on_once_the_network_is_back(network, ends):
    assert look_up(network(AUTHENTICATE, ends=ends, failures=1), "feedback") is None


def test_a_wrong_password_is_refused_with_the_brokers_own_words(network):
    # Ten times, because the answer may come together with the end of the connection, and be lost with it.
    for _ in range(10):
        with pytest.raises(SourceRefused, match="Authentication failed during authentication due to invalid"):
            look_up(network(0, password="wrong"), "feedback")


def test_a_command_whose_login_is_not_answered_ends_with_1(network, tmp_path):
    options = network(AUTHENTICATE, start_timeout_s=1.0)
    log = {"kind": "kafka", "servers": options.servers, "start_timeout_s": 1.0, **LOGIN}
    lines = "".join(f"{option} = {json.dumps(value)}\n" for option, value in log.items())
    (tmp_path / "omdml.toml").write_text(f"[log]\n{lines}")
    done = CliRunner().invoke(main, ["topics", "create", "-c", str(tmp_path / "omdml.toml")])
    assert done.exit_code == 1, done.output
