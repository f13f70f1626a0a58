"""How to reach a Kafka cluster, and what its client's errors mean here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import kafka.errors
import msgspec

from omdml.errors import SourceError

SECRETS = ("sasl_plain_password", "ssl_password")
REFUSALS = (kafka.errors.AuthorizationError, kafka.errors.SaslAuthenticationFailedError)
# What a client raises for a file, a mechanism or a setting it cannot use.
UNUSABLE = (OSError, ValueError, RuntimeError, ImportError)


class KafkaOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Connection to a cluster; TLS and SASL fields have the names and meanings they have in kafka-python.

    Parameters
    ----------
    servers
        ``host:port``, several separated by commas.
    start_timeout_s
        How long a source or sink waits for the cluster when it is made.
    """

    servers: str = "localhost:9092"
    client_id: str = "omdml"
    start_timeout_s: float = 10.0
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = None
    ssl_check_hostname: bool = True
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = None

    def client(self) -> dict[str, Any]:
        """Arguments that every kind of kafka-python client takes."""
        arguments = msgspec.structs.asdict(self)
        del arguments["servers"], arguments["start_timeout_s"]
        return arguments | {
            "bootstrap_servers": [server.strip() for server in self.servers.split(",")],
            "bootstrap_timeout_ms": int(self.start_timeout_s * 1000),
            "reconnect_backoff_max_ms": 1000,  # the default waits half a minute after an outage
        }

    def redact(self, text: str) -> str:
        """The text, without the passwords."""
        for name in SECRETS:
            if secret := getattr(self, name):
                text = text.replace(secret, "***")
        return text

    def __repr__(self) -> str:
        shown = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        fields = (f"{name}={'***' if name in SECRETS else repr(value)}" for name, value in shown.items())
        return f"KafkaOptions({', '.join(fields)})"


@contextmanager
def translated(options: KafkaOptions, doing: str) -> Iterator[None]:
    """Raise the client's errors as SourceError; ``doing`` completes the sentence "failed while ...".

    Retriable errors too: who can wait out an outage catches them further inside.
    """
    try:
        yield
    except REFUSALS as error:
        raise _source_error(options, doing, error, "check the credentials and the access rights (ACLs)") from error
    except kafka.errors.KafkaTimeoutError as error:
        do = "start the broker, or correct the servers, the security protocol or the credentials"
        raise _source_error(options, doing, error, do) from error
    except kafka.errors.KafkaError as error:
        raise _source_error(options, doing, error, "see the broker's log") from error


@contextmanager
def connecting(options: KafkaOptions) -> Iterator[None]:
    """Around the making of a client: translates also what it raises for options that it cannot use."""
    try:
        with translated(options, "connecting"):
            yield
    except UNUSABLE as error:
        raise _source_error(options, "connecting", error, "check the connection options") from error


def _source_error(options: KafkaOptions, doing: str, error: BaseException, do: str) -> SourceError:
    named = isinstance(error, kafka.errors.KafkaError)  # these say their name themselves
    what = options.redact(str(error) if named else f"{type(error).__name__}: {error}")
    return SourceError(f"Kafka at {options.servers} failed while {doing}: {what}; {do}")
