"""How to reach a Kafka cluster, and what its client's errors mean here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from omdml.errors import ConfigurationError, SourceError, SourceRefused

SASL = ("sasl_mechanism", "sasl_plain_username", "sasl_plain_password")
TLS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
SECRETS = ("sasl_plain_password", "ssl_password")
# What to do if the brokers refuse a transaction because somebody else began one under its name.
OTHER_PROCESS = (
    "another process took over this work. If it is a router with the same log.member, give each its own. If it is "
    "another omdml letters resend, leave the work to that one"
)
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

    def check(self) -> None:
        """Refuse options that lack one another, or would do nothing; raises ConfigurationError."""
        unused: list[str] = []
        mistakes: list[str] = []
        if self.security_protocol.startswith("SASL_"):
            for option in SASL:
                if not getattr(self, option):
                    mistakes.append(f"log.{option} is not set, and log.security_protocol asks for it")
        else:
            unused += SASL
        if not self.security_protocol.endswith("SSL"):
            unused += TLS
        for option in unused:
            if getattr(self, option):
                fitting = "'SASL_SSL' or 'SASL_PLAINTEXT'" if option in SASL else "'SSL' or 'SASL_SSL'"
                message = f"log.{option} is set, and log.security_protocol = {self.security_protocol!r} does not use it"
                mistakes.append(f"{message}: expected {fitting}")
        if self.ssl_keyfile and not self.ssl_certfile:
            mistakes.append("log.ssl_keyfile is set without log.ssl_certfile: expected both, or neither")
        if mistakes:
            raise ConfigurationError(*mistakes)

    def client(self) -> dict[str, Any]:
        """Arguments that every kind of kafka-python client takes."""
        arguments = msgspec.structs.asdict(self)
        del arguments["servers"], arguments["start_timeout_s"]
        return arguments | {
            "bootstrap_servers": [server.strip() for server in self.servers.split(",")],
            "bootstrap_timeout_ms": int(self.start_timeout_s * 1000),
            # By default a client waits half a minute after an outage.
            "reconnect_backoff_max_ms": 1000,
        }

    def redact(self, text: str) -> str:
        """The text with all passwords replaced by asterisks."""
        for name in SECRETS:
            if secret := getattr(self, name):
                text = text.replace(secret, "***")
        return text

    def __repr__(self) -> str:
        shown = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        fields = (f"{name}={'***' if name in SECRETS else repr(value)}" for name, value in shown.items())
        return f"{type(self).__name__}({', '.join(fields)})"


@contextmanager
def translated(options: KafkaOptions, doing: str) -> Iterator[None]:
    """Raise the client's errors as SourceError; ``doing`` completes the sentence "failed while ...".

    Retriable errors are raised, too. Whoever can wait until an outage is over catches them inside the block.
    """
    # Imported here: the options are part of the configuration, which is read without any client.
    import kafka.errors

    try:
        yield
    except kafka.errors.AuthorizationError as error:
        # Its own text may be pages of requests and answers.
        what, user = type(error).__name__, options.sasl_plain_username or "this client"
        advice = f"give {user} the rights (ACLs) that deploy/SECURITY.md lists"
        raise SourceRefused(f"Kafka at {options.servers} failed while {doing}: {what}; {advice}") from error
    except kafka.errors.SaslAuthenticationFailedError as error:
        raise refused(options, error) from error
    except kafka.errors.UnsupportedCodecError as error:
        advice = "install what reads it: pip install 'kafka-python[lz4,snappy,zstd]'"
        raise SourceRefused(f"Kafka at {options.servers} failed while {doing}: {error}; {advice}") from error
    except kafka.errors.InvalidSessionTimeoutError as error:
        what = "the brokers refuse log.session_timeout_s"
        advice = (
            "set it between their group.min.session.timeout.ms (6000 unless changed) and group.max.session.timeout.ms"
        )
        raise SourceRefused(f"Kafka at {options.servers} failed while {doing}: {what}; {advice}") from error
    except kafka.errors.KafkaTimeoutError as error:
        advice = "start the broker, or correct the servers, the security protocol or the credentials"
        raise _source_error(options, doing, error, advice) from error
    except kafka.errors.KafkaError as error:
        # The error may be of another class, and only quote the ProducerFencedError.
        fenced = "ProducerFencedError" in repr(error)
        advice = OTHER_PROCESS if fenced else "see the broker's log"
        raise _source_error(options, doing, error, advice) from error


@contextmanager
def connecting(options: KafkaOptions) -> Iterator[None]:
    """As :func:`translated`, while a client is made. Refused options become SourceErrors, too."""
    try:
        with translated(options, "connecting"):
            yield
    except UNUSABLE as error:
        raise _source_error(options, "connecting", error, "check the connection options") from error


def refused(options: KafkaOptions, error: BaseException) -> SourceRefused:
    """The error if the broker rejects our credentials; it names the user, and no password."""
    how = f"user {options.sasl_plain_username!r} with {options.sasl_mechanism}"
    advice = "correct log.sasl_plain_username, log.sasl_plain_password or log.sasl_mechanism"
    return SourceRefused(f"Kafka at {options.servers} rejects {how} ({options.redact(str(error))}); {advice}")


def _source_error(options: KafkaOptions, doing: str, error: BaseException, advice: str) -> SourceError:
    import kafka.errors

    # These errors say their own name.
    says_its_name = isinstance(error, kafka.errors.KafkaError)
    what = options.redact(str(error) if says_its_name else f"{type(error).__name__}: {error}")
    return SourceError(f"Kafka at {options.servers} failed while {doing}: {what}; {advice}")
