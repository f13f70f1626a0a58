"""``omdml worker``, ``node`` and ``route``: the services. ``omdml deploy``: the files to run them with."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omdml.errors import ConfigurationError
from omdml.workers.commands.options import accept_gap, configured, say, stored

if TYPE_CHECKING:
    from omdml.workers.configuration import config


@click.command()
@accept_gap
@configured
def worker(configuration: config.Configuration, accept_gap: bool) -> None:
    """Learn from the feedback log, and publish what was learned.

    It serves /metrics, /healthz and /readyz at worker.bind of the configuration. By default it serves nothing.
    """
    configuration.require_models()

    import structlog

    from omdml.workers.configuration import process
    from omdml.workers.configuration.warm_up import announce_compiling
    from omdml.workers.learning.measures import SINGLE
    from omdml.workers.telemetry import traces
    from omdml.workers.telemetry.condition import ConditionSource, Messenger
    from omdml.workers.telemetry.registry import new_registry
    from omdml.workers.telemetry.single_models import SingleModels
    from omdml.workers.telemetry.webhook import Webhook
    from omdml.workers.wiring.feedback_log import log_names
    from omdml.workers.wiring.worker import build_worker

    announce_compiling()
    process.lend_threads()
    traces.start("omdml-worker")
    registry = new_registry()
    facts, models = ConditionSource(), SingleModels("worker", SINGLE)
    process.serve_metrics(configuration.worker.bind, registry, condition=facts, models=models)
    learner = build_worker(configuration, registry, accept_gap)
    process.forget_start()
    # This comes before the probes answer, and before the log says that the worker has started: from then on somebody
    # may end it, and it must end in an orderly way.
    process.on_signals(learner.stop)
    facts.ask, models.ask = learner.condition, learner.single_models
    log = structlog.get_logger(__name__)
    log.info("worker_started", metrics=configuration.worker.bind, **log_names(configuration.log))
    hook = configuration.webhook
    with Messenger(facts), Webhook(hook.url, hook.timeout_s, registry):
        learner.run()


@click.command()
@configured
def node(configuration: config.Configuration) -> None:
    """Answer searches with the newest metric, over HTTP.

    The address is node.bind of the configuration, by default 127.0.0.1:8080.
    """
    configuration.require_models()

    from omdml.workers.backoffice.office import BackOffice
    from omdml.workers.configuration import process
    from omdml.workers.configuration.warm_up import announce_compiling
    from omdml.workers.telemetry import traces
    from omdml.workers.wiring.node import serve_node

    announce_compiling()
    process.one_thread()
    traces.start("omdml-node")
    with closing(BackOffice(configuration)) as office:
        serve_node(configuration, office)


@click.command()
@click.option("--from", "origin", required=True, metavar="TOPIC", help="Topic that the senders write to.")
@click.option("--bind", default="", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz here.")
@click.option(
    "--begin",
    type=click.Choice(["beginning", "end"]),
    help="Place to begin in that topic if both topics hold events, but Kafka has no offsets of the routers.",
)
@accept_gap
@stored
def route(configuration: config.Configuration, origin: str, bind: str, begin: str | None, accept_gap: bool) -> None:
    """Copy events of another topic into the feedback topic. Each is copied exactly once, with its model as the key.

    This is for senders that cannot set keys. Any number of routers share the topic's partitions. If
    log.member is set, give each router a different one.
    """
    import structlog

    from omdml.streams.kafka.routing.beginning import Begin
    from omdml.workers.configuration import process
    from omdml.workers.router.condition import condition
    from omdml.workers.telemetry.condition import ConditionSource, Messenger
    from omdml.workers.telemetry.registry import new_registry
    from omdml.workers.wiring.router import build_router

    log = structlog.get_logger(__name__)
    registry, facts = new_registry(), ConditionSource()
    process.serve_metrics(bind, registry, "--bind", facts)
    router = build_router(configuration.log, origin, registry, accept_gap, Begin(begin) if begin else None)
    process.on_signals(router.stop)
    facts.ask = lambda: condition(router, router.targets.topic)
    log.info("route_started", origin=origin, topic=router.targets.topic, group=router.source.group, metrics=bind)
    with Messenger(facts):
        router.run()
    log.info("route_stopped", origin=origin, topic=router.targets.topic)


@click.group()
def deploy() -> None:
    """Write the files that run omdml as a service and monitor it."""


@deploy.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def export(folder: Path) -> None:
    """Write the files of a deployment into DIR.

    These are systemd units, Kubernetes manifests, a Dockerfile, a compose file, alerts, two Grafana boards, and their
    pages.

    If DIR does not exist, it is created. Otherwise it must be empty.
    """
    from omdml.workers.operate import deployment

    try:
        written = deployment.write(folder)
    except FileExistsError as error:
        raise ConfigurationError(
            f"{folder} is not an empty folder: name one that is empty, or that does not exist yet"
        ) from error
    except OSError as error:
        raise ConfigurationError(f"{error.filename or folder}: {error.strerror}; nothing more was written") from error
    say(f"{folder}: {len(written)} files; begin with {folder / 'OPERATIONS.md'}")
