"""Checks of the options that need no learner: addresses, texts, shares, tokens."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from omdml.errors import ConfigurationError
from omdml.streams.addresses import masked, shown
from omdml.workers.configuration.access import check_pages, check_tokens
from omdml.workers.configuration.checks.mistakes import Mistakes
from omdml.workers.configuration.checks.ranges import check_ranges
from omdml.workers.configuration.config import Configuration, FileLog, GuardConfig, KafkaLog, LinksConfig
from omdml.workers.configuration.process import address

# What a header ``Host`` can name: a name or an address, and perhaps a port.
HOST = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")
ADDRESS = re.compile(r"https?://[^\s/?#]+(/\S*)?")


def check_all_but_models(configuration: Configuration, has_token: bool) -> None:
    """Check everything that needs no learner.

    Importing learners takes a tenth of a second: other mistakes should be reported before that.

    ``has_token`` says that the table has tokens of the node. If the configuration has none, they were mistakes.
    """
    mistakes, node = Mistakes(), configuration.node
    checks: tuple[Callable[[], object], ...] = (
        lambda: check_ranges(configuration),
        lambda: _check_guard(configuration.guard),
        lambda: _check_texts(configuration),
        lambda: configuration.log.check() if isinstance(configuration.log, KafkaLog) else None,
        lambda: check_tokens(node.token, node.tokens),
        lambda: check_pages(node.private and not has_token, node.origins, node.tokens, node.access),
        lambda: address(node.bind, "node.bind"),
        lambda: _check_hosts(node.hosts),
        lambda: address(configuration.worker.bind, "worker.bind") if configuration.worker.bind else None,
        lambda: _check_webhook(configuration),
        lambda: _check_links(configuration.links),
    )
    for check in checks:
        with mistakes.noted():
            check()
    mistakes.report()


def _check_hosts(hosts: Iterable[str]) -> None:
    wrong = [host for host in hosts if not HOST.fullmatch(host)]
    if wrong:
        expected = "expected names such as shop.internal, no patterns"
        raise ConfigurationError(*(f"node.hosts holds {shown(host)}, {expected}" for host in wrong))


def _check_links(links: LinksConfig) -> None:
    """Refuse links that are not addresses: a browser that follows one must not run a script."""
    wrong = [name for name in ("runbook", "grafana") if (link := getattr(links, name)) and not ADDRESS.fullmatch(link)]
    if wrong:
        expected = "expected http://HOST/PATH or https://HOST/PATH"
        raise ConfigurationError(*(f"links.{name} is not an address, {expected}" for name in wrong))


def _check_webhook(configuration: Configuration) -> None:
    url = configuration.webhook.url
    # The address may hold a secret: it is not shown.
    if url and not ADDRESS.fullmatch(url):
        raise ConfigurationError("webhook.url is not an address, expected http://HOST/PATH or https://HOST/PATH")
    if url and configuration.logging.level == "error":
        raise ConfigurationError(
            "webhook.url is set and logging.level is error: lines that are not written are not sent; expected warning, "
            "info or debug"
        )


def _check_guard(guard: GuardConfig) -> None:
    ranges = {
        "tolerance": (0 <= guard.tolerance <= 2, "a number from 0 to 2, because margins differ by at most 2"),
        "confidence": (0.5 <= guard.confidence < 1, "a probability from 0.5 to below 1"),
        "growth": (1 < guard.growth < math.inf, "a factor above 1"),
        "moved": (0 < guard.moved <= 1, "a share above 0, at most 1"),
    }
    wrong = [name for name, (sound, _) in ranges.items() if not sound]
    if wrong:
        raise ConfigurationError(
            *(f"guard.{name} is {getattr(guard, name)}, expected {ranges[name][1]}" for name in wrong)
        )


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
    mistakes = Mistakes()
    for name, text in texts.items():
        if not text.strip():
            mistakes.note(f"{name} is {text!r}, expected a value: set it, or leave it out for its default")
        elif name.startswith("log.") and "://" in text:
            mistakes.note(f"{name} is {masked(text)!r}, an address, expected {EXPECTED.get(name, 'a name')}")
        elif "\0" in text:
            mistakes.note(f"{name} holds a NUL (not shown), expected text without")
    mistakes.report()
    # Names that are not sound cannot be compared.
    _check_letters(log)


def _check_letters(log: FileLog | KafkaLog) -> None:
    if isinstance(log, FileLog) and Path(log.path).resolve() == Path(log.letters).resolve():
        raise ConfigurationError("log.letters is log.path: dead letters would be read as feedback")
    if isinstance(log, KafkaLog) and log.topic == log.letters:
        raise ConfigurationError("log.letters is log.topic: dead letters would be read as feedback")
