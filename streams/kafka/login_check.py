"""Says at once why a cluster does not let us in, by one connection before the client's own.

The client itself keeps trying until its time is up, and then says only that it could not connect. But a password or a
certificate that was refused once will be refused again. If a cluster is merely away, or does not answer in time, it is
left to the client: an answer that did not come is no refusal.
"""

from __future__ import annotations

import kafka.errors

from omdml.errors import SourceRefused
from omdml.streams.bounded_files import opened
from omdml.streams.kafka import internals
from omdml.streams.kafka.options import KafkaOptions, refused

# Brokers that have just started need seconds for their first passwords.
LIMIT_S = 10.0
# What brokers answer to a password, a user or a mechanism that they refuse.
NOT_LET_IN = (
    kafka.errors.SaslAuthenticationFailedError,
    kafka.errors.UnsupportedSaslMechanismError,
    kafka.errors.IllegalSaslStateError,
)
FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
CLIENT_CERTIFICATE = "log.ssl_certfile and log.ssl_keyfile"
# What to do, by a part of the error's message, because the client has one class for all errors of TLS. The first part
# that fits counts.
ADVICE = {
    "Hostname mismatch": "name the brokers in log.servers as their certificate does",
    "IP address mismatch": "name the brokers in log.servers as their certificate does",
    "CERTIFICATE_VERIFY_FAILED": "set log.ssl_cafile to the PEM file of the authority that signed their certificate",
    "CERTIFICATE_REQUIRED": f"set {CLIENT_CERTIFICATE}: they ask for a client's certificate",
    "BAD_CERTIFICATE": f"set {CLIENT_CERTIFICATE}: they ask for a client's certificate",
    # Java's name for the next one.
    "CERTIFICATE_UNKNOWN": f"set {CLIENT_CERTIFICATE} to a certificate of an authority that they trust",
    "UNKNOWN_CA": f"set {CLIENT_CERTIFICATE} to a certificate of an authority that they trust",
    "SSL:": "correct log.security_protocol or log.servers: this is no port for TLS",
}


def check_admission(options: KafkaOptions) -> None:
    """Return if TLS and SASL accept us, or if that cannot be determined. Raises SourceRefused, with what to correct.

    Takes at most half of ``start_timeout_s``: the client has the rest.
    """
    if options.security_protocol == "PLAINTEXT":
        return
    for name in FILES:
        if path := getattr(options, name):
            _check_readable(name, path)
    try:
        internals.try_to_connect(min(LIMIT_S, options.start_timeout_s / 2), **options.client())
    except NOT_LET_IN as error:
        raise refused(options, error) from error
    except kafka.errors.KafkaError as error:
        for sign, advice in ADVICE.items():
            if sign in str(error):
                raise SourceRefused(f"Kafka at {options.servers}: {options.redact(str(error))}; {advice}") from error


def _check_readable(option: str, path: str) -> None:
    """Refuse a file that cannot be read, by its name: OpenSSL does not say it."""
    try:
        with opened(path):
            pass
    except OSError as error:
        message = f"log.{option} {path}: cannot be read ({error.strerror}); expected a PEM file"
        raise SourceRefused(message) from error
