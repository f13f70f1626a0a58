"""Checks of an installation, each with what to do about it."""

from __future__ import annotations

import importlib.metadata
import sys
import time
from collections.abc import Iterable, Iterator

import msgspec

from omdml.errors import CatalogueError, ConfigurationError, StartError, StoreRefused
from omdml.messages.suggestion import suggestion
from omdml.streams.addresses import masked
from omdml.streams.catalogues.redis.place import is_redis_url
from omdml.streams.files.reader import has_begun, open_log
from omdml.streams.kafka.topic import look_up
from omdml.streams.part_names import part_of
from omdml.streams.placement import Placement
from omdml.streams.protocols.store import Store
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.opening import open_store
from omdml.streams.stores.redis.client import check_eviction
from omdml.workers.configuration.config import Configuration, FileLog, KafkaLog
from omdml.workers.configuration.specs import Specs
from omdml.workers.configuration.wording import amount
from omdml.workers.doctor.checks import durability
from omdml.workers.doctor.checks.checkpoints import checkpoints
from omdml.workers.doctor.checks.letters import missing, unsent
from omdml.workers.doctor.checks.lost_store import lost_store
from omdml.workers.doctor.checks.node import access, node_here
from omdml.workers.doctor.checks.partitions import expiring, partitions
from omdml.workers.doctor.checks.rate_check import inert_rates
from omdml.workers.doctor.checks.senders import advise, look_at_senders, mistyped_fields
from omdml.workers.doctor.checks.serving import serving
from omdml.workers.doctor.checks.waiting_events import cannot_come, file_log, is_no_log, log_to_come
from omdml.workers.doctor.facts import Facts
from omdml.workers.doctor.findings import Finding, Level, Remark, all_well, error, run_check, warning
from omdml.workers.operate.topics import other_group
from omdml.workers.wiring.dead_letters import letters_topic
from omdml.workers.wiring.feedback_log import newest_events, open_sink, open_source
from omdml.workers.wiring.kafka_topic import connection
from omdml.workers.wiring.models import open_catalogues


def examine(configuration: Configuration) -> Iterator[Finding]:
    """Look at versions, catalogues, models, log and store; one finding after the other."""
    facts = Facts(configuration)
    yield from run_check("versions", _versions)
    catalogues = run_check("catalogues", lambda: _catalogues(configuration))
    yield from catalogues
    facts.opened = all_well(catalogues)
    if facts.opened:
        yield from _models_and_rates(facts)
    log = run_check("log", lambda: _log(configuration.log))
    facts.readable = all_well(log)
    store = run_check("store", lambda: _store(facts))
    yield from (*log, *store)
    readable = configuration.log if facts.readable else None
    if readable:
        yield from run_check("log's safety", lambda: durability.of_log(readable))
    yield from examine_facts(facts, all_well(store))
    if all_well(store):
        yield from run_check("store's secret", lambda: _secret(facts.store))
    if all_well(store) and isinstance(readable, KafkaLog):
        yield from run_check("senders", lambda: _senders(facts, readable))
    yield from run_check("node", lambda: node_here(configuration.node))


def examine_facts(facts: Facts, stored: bool) -> Iterator[Finding]:
    """Look at the facts that ``omdml status`` shows as well; ``stored`` if the store can be asked."""
    log, url = facts.configuration.log, facts.configuration.store.url
    if facts.readable:
        yield from run_check("letters", lambda: _letters(facts))
    if stored:
        yield from run_check("store's safety", lambda: durability.of_store(url, facts.safety))
        if facts.configuration.models and facts.opened:
            yield from run_check("checkpoints", lambda: _checkpoints(facts))
        yield from run_check("serving", lambda: _serving(facts))
    if stored and facts.readable and isinstance(log, KafkaLog):
        yield from run_check("partitions", lambda: _partitions(facts, log))
    elif stored and facts.readable and isinstance(log, FileLog) and has_begun(log.path):
        yield from run_check("reading", lambda: _reading(facts, log))


def examine_configuration(configuration: Configuration) -> Iterator[Finding]:
    """Look at what needs no server: catalogues in folders, and the models on them."""
    in_folders = {
        name: catalogue for name, catalogue in configuration.catalogues.items() if not is_redis_url(catalogue.path)
    }
    models = {name: model for name, model in configuration.models.items() if model.catalogue in in_folders}
    without_redis = msgspec.structs.replace(configuration, catalogues=in_folders, models=models)
    findings = run_check("catalogues", lambda: _catalogues(without_redis))
    yield from findings
    if all_well(findings) and (models or not configuration.models):
        facts = Facts(without_redis)
        yield from _models_and_rates(facts)
    yield from run_check("store", lambda: _address(configuration.store.url))
    yield from run_check("node", lambda: access(configuration.node))
    if in_redis := sorted(configuration.catalogues.keys() - in_folders.keys()):
        yield Finding(
            "not looked at", Level.OK, f"in Redis: {', '.join(in_redis)}, and the models on it; omdml doctor does"
        )


def _versions() -> str:
    names = ("omdml", "numpy", "numba", "kafka-python", "redis")
    return ", ".join([f"Python {sys.version.split()[0]}", *(f"{name} {_version(name)}" for name in names)])


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed as a package"


def _catalogues(configuration: Configuration) -> str | list[Remark]:
    """What the catalogues hold; a remark for each that cannot be opened, with the models that need it."""
    seen, remarks = [], []
    for name, config in configuration.catalogues.items():
        try:
            catalogue = open_catalogues(msgspec.structs.replace(configuration, catalogues={name: config}))[name]
        except CatalogueError as problem:
            models = [model for model, spec in configuration.models.items() if spec.catalogue == name]
            needed = f". These models need it: {', '.join(models)}" if models else ". No model needs it"
            remarks.append(error(f"{problem}{needed}. Until it can be opened, no model or checkpoint is looked at"))
            continue
        numbers = amount(sum(catalogue.dims.values()), "number")
        items = amount(catalogue.shown.items, "item")
        seen.append(f"{name}: {items}, {numbers} in {modalities(len(catalogue.dims))}")
    return remarks or "; ".join(seen) or "none configured"


def modalities(count: int) -> str:
    """A number of modalities, in words.

    Examples
    --------
    >>> modalities(1), modalities(3)
    ('1 modality', '3 modalities')
    """
    return "1 modality" if count == 1 else f"{count:,} modalities"


def _models_and_rates(facts: Facts) -> Iterator[Finding]:
    models = run_check("models", lambda: _models(facts.specs))
    yield from models
    if all_well(models):
        yield from run_check("rates", lambda: _rates(facts.specs))


def _address(url: str) -> str:
    open_store(url)
    return f"{masked(url)} is the address of a store; it was not asked"


def _models(specs: Specs) -> str | list[Remark]:
    """Whether every configured model can begin; otherwise a remark for each that cannot."""
    remarks = []
    for name in specs.configuration.models:
        spec = specs.find(name)
        try:
            if spec is not None:
                spec.fresh()
        except StartError as problem:
            remarks.append(error(f"models.{name}: {problem}"))
    return remarks or ", ".join(specs.configuration.models)


def _rates(specs: Specs) -> str:
    specs_of = {name: specs.find(name) for name in specs.configuration.models}
    inert = [line for name, spec in specs_of.items() if spec
             for line in inert_rates(name, spec.fresh(), spec.catalogue.features)]  # fmt: skip
    if inert:
        raise ConfigurationError("; ".join(inert))
    return "no model has a rate that is too small to learn anything"


def _log(log: FileLog | KafkaLog) -> str | list[Remark]:
    if isinstance(log, FileLog) and not has_begun(log.path):
        return log_to_come(log.path)
    open_sink(log).close()
    if isinstance(log, FileLog):
        return is_no_log(log.path) or f"{log.path} can be opened"
    source = open_source(log)
    source.close()
    return f"topic {log.topic!r} at {log.servers} is there, and fit for feedback"


def _store(facts: Facts) -> str | list[Remark]:
    url, store, names = facts.configuration.store.url, facts.store, facts.names
    check_eviction(url)
    if isinstance(store, DirectoryStore) and not store.store_id:
        refused = lost_store(facts) or cannot_come(f"store {masked(url)}", store.path)
        return refused or f"{masked(url)} is made by the first worker"
    return f"{masked(url)} holds {amount(len(names), 'model')}"


def _secret(store: Store) -> str | list[Remark]:
    try:
        secret = store.kept_secret()
    except StoreRefused:
        return [warning("this user may not read it. That is right for a node, but a worker needs it: see SECURITY.md")]
    return "it exists; it decides which events workers hold out" if secret else "none yet: the first worker makes it"


def _checkpoints(facts: Facts) -> str | list[Remark]:
    return checkpoints(facts.saved, len(facts.names))


def _serving(facts: Facts) -> str | list[Remark]:
    seen, mistyped = serving(facts.served, len(facts.names)), mistyped_models(facts.configuration, facts.names)
    return [*seen, *mistyped] if isinstance(seen, list) else mistyped or seen


def mistyped_models(configuration: Configuration, stored: Iterable[str]) -> list[Remark]:
    """Warnings about models in the store that nothing covers, while the configuration has one of nearly this name."""
    uncovered = [name for name in stored if not configuration.match(name) and part_of(name) is None]
    return [
        warning(f"model {name} is in the store, and no configured model covers it{hint}")
        for name in uncovered
        if (hint := suggestion(name, configuration.models)).startswith(": did you mean")
    ]


def _letters(facts: Facts) -> str | list[Remark]:
    log = facts.configuration.log
    if isinstance(log, KafkaLog):
        # The topic is looked up last: the first worker makes it and then joins the group.
        begun = any(extent.committed is not None for extent in facts.reach()) or facts.workers
        if look_up(connection(log), topic := letters_topic(log)) is None:
            return missing(topic, bool(log.letters or begun))
    return unsent(*facts.letters, time.time(), hasty=facts.look_s is not None)


def _reading(facts: Facts, log: FileLog) -> str | list[Remark]:
    seen = file_log(log, facts.reading, time.time())
    return _with_other_group(facts, open_log(log.path).topic_id, seen)


def _partitions(facts: Facts, log: KafkaLog) -> str | list[Remark]:
    now = time.time()
    soon = expiring(facts.lines, facts.since, facts.retention_s, log, now)
    seen = partitions(facts.lines, facts.placement, log.partitioner, bool(facts.workers), facts.since, now)
    if soon:
        seen = soon if isinstance(seen, str) else [*soon, *seen]
    return _with_other_group(facts, facts.lines[0].extent.partition.topic_id, seen, bool(facts.workers))


def _with_other_group(
    facts: Facts, topic_id: str, seen: str | list[Remark], learning: bool = False
) -> str | list[Remark]:
    """What was seen of a log. If workers read it as another group, that comes first: it may explain the rest."""
    if not (other := other_group(facts.store, topic_id, facts.configuration.log.group, learning)):
        return seen
    return [error(other), *([] if isinstance(seen, str) else seen)]


def _senders(facts: Facts, log: KafkaLog) -> str | list[Remark]:
    lines, positions = facts.lines, facts.store.positions(facts.names)
    placement = facts.placement or Placement.first(log.partitioner, len(lines))
    homes = {position.home.topic_id for position in positions.values()}
    senders = look_at_senders(newest_events(log).records, placement, len(lines), facts.configuration.in_parts)
    seen = advise(senders, lines[0].extent.partition.topic_id in homes, time.time())
    mistyped = mistyped_fields(senders)
    return [*seen, *mistyped] if isinstance(seen, list) else mistyped or seen
