"""How to reach a Redis or Valkey server, and what its client's errors mean here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from redis import exceptions
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from omdml.errors import ConfigurationError, StoreError, StoreRefused
from omdml.streams.addresses import SCHEMES, masked, without_prefix

# Seconds to connect, and seconds until each answer.
TIMEOUT_S = 2.0
# Whatever may be sent twice is a compare-and-set, or has the same effect twice.
RETRIES = 1
# A connection that was idle for so many seconds is asked for a sign of life before it is used.
HEALTH_CHECK_S = 5
# Bytes of a value whose copy would take longer than the two system calls that it saves.
LARGE = 100_000
RIGHTS = "give this user the rights that deploy/SECURITY.md lists"
ADVICE: list[tuple[type[exceptions.RedisError], str]] = [
    (exceptions.BusyLoadingError, "it is still reading its data from disk: wait"),
    (exceptions.AuthenticationError, "correct user and password in store.url"),
    (exceptions.AuthorizationError, "correct user and password in store.url"),
    (exceptions.NoPermissionError, RIGHTS),
    (exceptions.ReadOnlyError, "it is a replica: name the primary in store.url"),
    (exceptions.OutOfMemoryError, "raise its maxmemory, or delete models"),
    (exceptions.TimeoutError, "is it up, reachable, and not overloaded? Or correct store.url"),
    (exceptions.ConnectionError, "is it up, and reachable from here? Or correct store.url"),
    (exceptions.RedisError, "see the server's log"),
]
REFUSALS = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
CLIENT_CERTIFICATE = "it asks for a client's certificate: ?ssl_certfile=client.pem&ssl_keyfile=client.key"
# What to do, by a part of the message, because the client has no class for these refusals. The first that fits counts.
REFUSAL_ADVICE = {
    "ACL failure in script": RIGHTS,
    # The words of Redis 7.0.
    "The user executing the script can't": RIGHTS,
    "Hostname mismatch": "name the server in store.url as its certificate does",
    "IP address mismatch": "name the server in store.url as its certificate does",
    "CERTIFICATE_VERIFY_FAILED": "name the file of the authority that signed its certificate: ?ssl_ca_certs=ca.pem",
    "CERTIFICATE_REQUIRED": CLIENT_CERTIFICATE,
}
# A handshake also ends like this if the server stops or the network is cut. So it is tried again.
CUT = "EOF occurred in violation of protocol"
CUT_ADVICE = f"the handshake was broken off: is it up? Or {CLIENT_CERTIFICATE}"
# What the server says of a key, or of a value in it, that others wrote.
MISFITS = ("WRONGTYPE", "not an integer")
MISFIT_ADVICE = (
    "a key there is not as omdml wrote it (epoch: string; history: stream; current, newest, checkpoint: hash): restore "
    "or remove that key"
)
PIPELINED = re.compile(r"^Command # \d+ \((\S+ ?\S*).*\) of pipeline caused error: ", re.DOTALL)
FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


class WholeCommands:
    """Packs each command as one piece of bytes, except that large values are not copied.

    The client's own way cuts a command at each value of more than 6,000 bytes, and writes each piece by a system call
    of its own. Claims and first writes of new models took 1.2 times the processor time with it.
    """

    def pack(self, *words: bytes | memoryview | str | int | float) -> list[bytes]:
        """The bytes of a command in the server's protocol. The first word is its name, which may have a blank in it."""
        name, *values = map(as_bytes, words)
        all_words = [*name.split(), *values]
        pieces: list[bytes] = []
        parts = [b"*%d\r\n" % len(all_words)]
        for value in all_words:
            parts.append(b"$%d\r\n" % len(value))
            if len(value) >= LARGE:
                pieces += (b"".join(parts), value)
                parts = [b"\r\n"]
            else:
                parts += (value, b"\r\n")
        return [*pieces, b"".join(parts)]


def as_bytes(word: bytes | memoryview | str | int | float) -> bytes:
    """What the server is sent for a word; raises DataError for what has no agreed form."""
    if isinstance(word, bytes):
        return word
    if isinstance(word, str):
        return word.encode()
    if isinstance(word, bytearray | memoryview):
        return bytes(word)
    if type(word) in (int, float):
        return repr(word).encode()
    raise exceptions.DataError(f"a word of a command: {type(word).__name__}, expected bytes, text or a number")


def connect(url: str, timeout_s: float = TIMEOUT_S, retries: int = RETRIES) -> Any:
    """A client with bounded patience; it connects when it is first used. Raises ConfigurationError."""
    scheme, _, rest = url.partition("://")
    try:
        # redis-py would take a database that is no number for 0.
        int(urlsplit(url).path.strip("/") or 0)
        client = redis.Redis.from_url(
            f"{SCHEMES[scheme]}://{rest}",
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            health_check_interval=HEALTH_CHECK_S,
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), retries),
            command_packer=WholeCommands(),
        )
        pool = client.connection_pool
        # Options that the class does not know are found out only here.
        pool.connection_class(**pool.connection_kwargs)
        _check_files(pool.connection_kwargs)
    except (ValueError, KeyError, TypeError):
        # The texts of these errors may quote a password.
        raise ConfigurationError(
            f"store.url: {masked(url)!r} (user, password and options left out) is not an address of a server. Expected "
            "redis://user:password@host:6379/0, with percent-encoding if the password has special characters"
        ) from None
    return client


def _check_files(options: Mapping[str, Any]) -> None:
    """Refuse a file of TLS that is not there, by its name: the client's error has none."""
    for name in FILES:
        if (path := options.get(name)) and not Path(path).is_file():
            raise ConfigurationError(f"store.url: {name}={path}: no such file; expected a PEM file")


def run_of(server: Any, replication: Any) -> str:
    """What changes when the server is started again or another one takes over: it may have forgotten something.

    Empty if this user may not ask, or the server cannot tell. The parameters are its answers to INFO.
    """
    for answer in (server, replication):
        if isinstance(answer, exceptions.NoPermissionError):
            return ""
        if isinstance(answer, exceptions.RedisError):
            raise answer
    return f"{server.get('run_id', '')} {replication.get('master_replid', '')}".strip()


def check_eviction(url: str) -> None:
    """Raise StoreRefused if the address is a server's that may drop our keys to make room for others."""
    if url.partition(":")[0] not in SCHEMES:
        return
    with reaching(masked(url)), connect(without_prefix(url)[0]) as client:
        policy = client.info("memory").get("maxmemory_policy", "")
    if policy.startswith("allkeys"):
        raise StoreRefused(
            f"store {masked(url)}: maxmemory-policy {policy} drops what was learned if memory is short. Set "
            "noeviction, or one of volatile-*, in the server's configuration"
        )


def about_a_key(error: exceptions.RedisError) -> bool:
    """Whether a refusal is about the key of its command.

    Otherwise the command is not worth naming: a full server, for example, refuses any command that happens to be first.
    """
    return isinstance(error, exceptions.NoPermissionError) or any(sign in str(error) for sign in MISFITS)


@contextmanager
def reaching(where: str, model: str | None = None) -> Iterator[None]:
    """Turn the client's errors into a StoreError that names the server and says what to do.

    It names the model, too, if a key of that model is the cause. The same failure always has the same words, so that
    callers can log it once.
    """
    try:
        yield
    except redis.RedisError as error:
        # The rest of the command is left out, because it may hold a random value.
        message = PIPELINED.sub(r"\1: " if about_a_key(error) else "", str(error)).rstrip(".")
        misfit = any(sign in message for sign in MISFITS)
        if misfit and model is not None:
            where = f"{where}: model {model!r}"
        refusal = next((advice for sign, advice in REFUSAL_ADVICE.items() if sign in message), "")
        if refusal:
            advice = refusal
        elif CUT in message:
            advice = CUT_ADVICE
        elif misfit:
            advice = MISFIT_ADVICE
        else:
            advice = next(advice for kind, advice in ADVICE if isinstance(error, kind))
        raised = StoreRefused if refusal or isinstance(error, REFUSALS) else StoreError
        raise raised(f"store {where}: {message}: {advice}") from error


@contextmanager
def changing(where: str, model: str, afterwards: str) -> Iterator[None]:
    """As `reaching`, for a change that is not the same twice.

    If the answer is lost, nobody knows whether the server made the change. The error then says so, and ends with what
    to look at ``afterwards``.
    """
    try:
        with reaching(where, model):
            yield
    except StoreRefused:
        raise
    except StoreError as error:
        if not isinstance(error.__cause__, exceptions.ConnectionError | exceptions.TimeoutError):
            raise
        raise StoreError(f"{error}. The change may have been made all the same: {afterwards}") from error
