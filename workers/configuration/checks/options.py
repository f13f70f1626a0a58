"""What options must be that need no learner: addresses, texts, shares, tokens."""

from __future__ import annotations

import math
import re
from pathlib import Path

from omdml.errors import ConfigurationError
from omdml.streams.addresses import masked, shown
from omdml.workers.configuration.access import check_pages, check_tokens
from omdml.workers.configuration.checks.ranges import check_ranges
from omdml.workers.configuration.config import Configuration, FileLog, GuardConfig, KafkaLog
from omdml.workers.configuration.process import address

# What a header ``Host`` can name: a name or an address, and perhaps a port.
HOST = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
ADDRESS = re.compile(r"https?://[^\s/?#]+(/\S*)?")


def check_all_but_models(configuration: Configuration) -> None:
    """What needs no learner. Importing these takes a second; other mistakes should be told before that."""
    check_ranges(configuration)
    _check_guard(configuration.guard)
    _check_texts(configuration)
    _check_letters(configuration.log)
    if isinstance(configuration.log, KafkaLog):
        configuration.log.check()
    check_tokens(configuration.node.token, configuration.node.tokens)
    check_pages(
        configuration.node.private, configuration.node.origins, configuration.node.tokens, configuration.node.access
    )
    address(configuration.node.bind, "node.bind")
    for host in configuration.node.hosts:
        if not HOST.fullmatch(host):
            raise ConfigurationError(
                f"node.hosts holds {shown(host)}, expected names such as shop.internal, no patterns"
            )
    if configuration.worker.bind:
        address(configuration.worker.bind, "worker.bind")
    _check_webhook(configuration)
    # A browser that follows them must not run a script.
    for name in ("runbook", "grafana"):
        link = getattr(configuration.links, name)
        if link and not ADDRESS.fullmatch(link):
            raise ConfigurationError(f"links.{name} is no address, expected http://HOST/PATH or https://HOST/PATH")


def _check_webhook(configuration: Configuration) -> None:
    url = configuration.webhook.url
    # The address may hold a secret: it is not shown.
    if url and not ADDRESS.fullmatch(url):
        raise ConfigurationError("webhook.url is no address, expected http://HOST/PATH or https://HOST/PATH")
    if url and configuration.logging.level == "error":
        raise ConfigurationError(
            "webhook.url is set and logging.level is error: lines that are not written are not sent; expected warning, "
            "info or debug"
        )


def _check_guard(guard: GuardConfig) -> None:
    ranges = {
        "tolerance": (0 <= guard.tolerance <= 2, "a number from 0 to 2, what margins can differ by"),
        "confidence": (0.5 <= guard.confidence < 1, "a probability from 0.5 to below 1"),
        "growth": (1 < guard.growth < math.inf, "a factor above 1"),
        "moved": (0 < guard.moved <= 1, "a share above 0, at most 1"),
    }
    for name, (sound, expected) in ranges.items():
        if not sound:
            raise ConfigurationError(f"guard.{name} is {getattr(guard, name)}, expected {expected}")


EXPECTED = {"log.path": "a path", "log.letters": "a path or a topic", "log.servers": "host:port"}


def _check_texts(configuration: Configuration) -> None:
    """Refuse what is empty and must not be, as an unset variable of the environment makes it."""
    log = configuration.log
    names = ("path", "letters", "group") if isinstance(log, FileLog) else ("servers", "topic", "group")
    texts: dict[str, str] = {f"log.{name}": getattr(log, name) for name in names}
    texts["store.url"] = configuration.store.url
    texts |= {f"catalogues.{name}.path": catalogue.path for name, catalogue in configuration.catalogues.items()}
    if isinstance(log, KafkaLog) and "@" in log.servers:
        raise ConfigurationError(
            "log.servers holds a user or a password (not shown), expected host:port: they belong in "
            "log.sasl_plain_username and log.sasl_plain_password_file"
        )
    if isinstance(log, KafkaLog):
        if log.member is not None:
            texts["log.member"] = log.member
        if log.letters:
            texts["log.letters"] = log.letters
    for name, text in texts.items():
        if not text.strip():
            raise ConfigurationError(f"{name} is {text!r}, expected a value: set it, or leave it out for its default")
        if name.startswith("log.") and "://" in text:
            raise ConfigurationError(f"{name} is {masked(text)!r}, an address, expected {EXPECTED.get(name, 'a name')}")
        if "\0" in text:
            raise ConfigurationError(f"{name} holds a NUL (not shown), expected text without")


def _check_letters(log: FileLog | KafkaLog) -> None:
    if isinstance(log, FileLog) and Path(log.path).resolve() == Path(log.letters).resolve():
        raise ConfigurationError("log.letters is log.path: dead letters would be read as feedback")
    if isinstance(log, KafkaLog) and log.topic == log.letters:
        raise ConfigurationError("log.letters is log.topic: dead letters would be read as feedback")
