"""``omdml route``: for senders that cannot key their events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from workers.commands.options import accept_gap, stored

if TYPE_CHECKING:
    from workers import config


@click.command()
@click.option("--from", "origin", required=True, metavar="TOPIC", help="Topic that the senders write to.")
@click.option("--bind", default="", metavar="HOST:PORT", help="Serve /metrics here; nowhere by default.")
@click.option(
    "--begin",
    type=click.Choice(["beginning", "end"]),
    help="Where to begin in that topic if Kafka keeps no offsets of its routers, and events were routed before.",
)
@accept_gap
@stored
def route(configuration: config.Configuration, origin: str, bind: str, begin: str | None, accept_gap: bool) -> None:
    """Copy a topic of any partitioning into the configured one, keyed by model, each event exactly once.

    For senders that cannot key. Any number of routers share the topic's partitions; each needs a log.member of its own.
    """
    import structlog
    from prometheus_client import CollectorRegistry

    from streams.kafka.beginning import Begin
    from workers import lifecycle, wiring

    log = structlog.get_logger(__name__)
    registry = CollectorRegistry()
    lifecycle.serve_metrics(bind, registry, "--bind")
    router = wiring.build_router(configuration.log, origin, registry, accept_gap, Begin(begin) if begin else None)
    lifecycle.on_signals(router.stop)
    log.info("route_started", origin=origin, topic=router.targets.topic, group=router.source.group, metrics=bind)
    router.run()
    log.info("route_stopped", origin=origin, topic=router.targets.topic)
