"""``omdml topics``: the feedback log's topic in Kafka."""

from __future__ import annotations

import re
import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from omdml.workers.commands.options import configured, print_table, say, stored
from omdml.workers.commands.store.models import confirm

if TYPE_CHECKING:
    from omdml.workers.configuration import config

# The default number of partitions of a new topic.
PARTITIONS = 4
# The last column of omdml topics status.
PROBLEM = "what is wrong, what to do"


@click.group()
def topics() -> None:
    """Create, grow and inspect the feedback log's topic in Kafka."""


@topics.command("create")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions. More can be added with omdml topics grow. [default: 4]",
)
@click.option("--topic", help="Name of another topic to create, such as the one that omdml route reads.")
@configured
def create(configuration: config.Configuration, partitions: int | None, topic: str | None) -> None:
    """Create the configured topic. Its events are kept for ever. An existing topic is not changed.

    The exit code is 1 if it exists and has fewer partitions than asked for.
    """
    from omdml.workers.configuration.config import KafkaLog
    from omdml.workers.configuration.wording import amount
    from omdml.workers.wiring.kafka_topic import create_log

    name, created, count = create_log(configuration.log, partitions or PARTITIONS, topic)
    if created:
        say(f"topic {name} created, {amount(count, 'partition')}")
        return
    say(f"topic {name} exists already with {amount(count, 'partition')}, nothing was changed")
    if partitions and count < partitions:
        command = "omdml topics grow"
        if topic and isinstance(configuration.log, KafkaLog):
            command = f"kafka-topics.sh --bootstrap-server {configuration.log.servers} --alter --topic {topic}"
        say(f"to add partitions, run {command} --partitions {partitions}", err=True)
        sys.exit(1)


@topics.command("grow")
@click.option("--partitions", required=True, type=click.IntRange(min=1), help="Number of partitions after growing.")
@stored
def grow(configuration: config.Configuration, partitions: int) -> None:
    """Add partitions to the topic. The new number must be a multiple of the number of partitions that models live on.

    Workers may run. They go on with the old partitions; models move to the new ones with omdml topics rehome.
    """
    from omdml.workers.wiring.kafka_topic import grow_log

    homes, before = grow_log(configuration, partitions)
    say(f"the topic has {partitions} partitions, it had {before}")
    if partitions > homes:
        say(
            f"models live on {homes} of them: once all senders know of the new ones (five minutes with Kafka's "
            "defaults), stop the senders and the workers, then run omdml topics rehome"
        )


@topics.command("status")
@stored
def status(configuration: config.Configuration) -> None:
    """Show every partition of the topic. It shows what the partition holds, how far it is learned, by which worker, and
    what is wrong.

    The log holds the offsets from begin to end. Everything below mark is learned and saved; lag is what is left up to
    the end. models counts the models that are learned from the partition. commit is Kafka's own note of the position.
    The last column says why nobody goes on with a partition, and what to do. A line below the table says if the store
    names another group of workers. The exit code is 1 if something is wrong.
    """
    from omdml.workers.operate.topics import other_group
    from omdml.workers.wiring.kafka_topic import survey_topic
    from omdml.workers.wiring.stores import open_stores

    lines = survey_topic(configuration)
    columns = ("partition", "begin", "end", "commit", "mark", "lag", "models", "worker", PROBLEM)
    print_table(columns, [
        (extent.partition.number, extent.begin, extent.end, offset_or_dash(extent.committed), offset_or_dash(mark),
         line.lag, models, worker or "-", wrong or "nothing")
        for line in lines for extent, mark, models, worker, wrong in (line,)
    ])  # fmt: skip
    topic_id, learning = lines[0].extent.partition.topic_id, any(line.worker for line in lines)
    other = other_group(open_stores(configuration), topic_id, configuration.log.group, learning)
    if other:
        say(other)
    sys.exit(1 if other or any(line.wrong for line in lines) else 0)


def offset_or_dash(offset: int | None) -> str:
    """An offset as text, or ``-`` if there is none."""
    return "-" if offset is None else str(offset)


@topics.command("rewind")
@click.option("--to", default="beginning", show_default=True, metavar="beginning|OFFSET", help="Place to begin at.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="Number of partitions that the topic began with, if it has grown and the store does not know this number.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@stored
def rewind(configuration: config.Configuration, to: str, partitions: int | None, yes: bool) -> None:
    """Learn every model again from the log. Stop the workers first.

    The models and their snapshots are deleted from the store. Until they are learned again, nodes answer with what
    models begin with. Events that cannot be learned become dead letters again. Two letters about one event count
    once. An event that omdml letters resend sent again is learned once. Events of users who were forgotten are learned
    again: run omdml forget again afterwards.

    If partitions were added since the log began, models live on the first ones again. When these are learned, run omdml
    topics rehome.
    """
    from omdml.streams.part_names import whole_of
    from omdml.workers.configuration.wording import amount
    from omdml.workers.operate import topics
    from omdml.workers.wiring.feedback_log import partitioner_of, require_stopped
    from omdml.workers.wiring.kafka_topic import look_at_topic, require_topic, workers_of
    from omdml.workers.wiring.stores import open_stores

    if not re.fullmatch("beginning|[0-9]{1,19}", to):
        raise click.BadParameter(f"{to!r} is neither 'beginning' nor an offset", param_hint="--to")
    require_topic(configuration.log)
    store = open_stores(configuration)
    require_stopped(configuration.log, store)
    confirm("Delete all models of the topic (nodes forget them too), to learn them again?", yes)
    # Somebody may have started a worker while the question waited.
    require_stopped(configuration.log, store)
    extents = look_at_topic(configuration.log)
    # A worker that starts with an empty store places models on all partitions before it sees that others were read.
    count_is_unknown = partitions is None and not store.marks([extent.partition for extent in extents])
    configured_names = [name for name in store.models() if configuration.match(whole_of(name))]
    partitioner = partitioner_of(configuration.log)
    offset = None if to == "beginning" else int(to)
    workers = partial(workers_of, configuration.log)
    deleted = topics.rewind(extents, store, partitioner, configured_names, offset, partitions, workers)
    place = "the beginning" if offset is None else f"offset {offset}"
    say(f"{amount(len(deleted), 'model')} deleted; workers begin at {place}")
    if count_is_unknown and len(extents) > 1:
        say(
            "the store does not know how many partitions the topic began with: models will live on all "
            f"{len(extents)}. If partitions were added since, run this again with the number that it began with: "
            "omdml topics rewind --partitions N"
        )
    placement = store.placement(extents[0].partition.topic_id)
    if placement and placement.count < len(extents):
        say(
            f"models live on the first {placement.count} of {len(extents)} partitions again: once workers have learned "
            "these, stop the senders and the workers, then run omdml topics rehome"
        )


@topics.command("rehome")
@click.option("--partitions", type=click.IntRange(min=1), help="Number of partitions to use. [default: all]")
@click.option(
    "--senders-go-on",
    is_flag=True,
    help="Do it even if not everything is learned: events that wait for models that move become dead letters.",
)
@stored
def rehome(configuration: config.Configuration, partitions: int | None, senders_go_on: bool) -> None:
    """Let models live on the added partitions, too. These are partitions that omdml topics grow added to the topic.

    The number of partitions must be a multiple of the number that models live on now. First let the workers learn
    everything, then stop them. Wait until all senders know the new partitions, too: this takes up to five minutes with
    Kafka's defaults, ten seconds with omdml's own. An event that is still sent to a model's old partition becomes a
    dead letter, to be sent again.
    """
    from omdml.workers.configuration.wording import amount
    from omdml.workers.operate import topics
    from omdml.workers.wiring.feedback_log import require_stopped
    from omdml.workers.wiring.kafka_topic import look_at_topic
    from omdml.workers.wiring.stores import open_stores

    store = open_stores(configuration)
    require_stopped(configuration.log, store)
    extents = look_at_topic(configuration.log)
    before, now, waiting = topics.rehome(extents, store, partitions, senders_go_on)
    if before == now:
        say(f"models live on all {now} partitions already")
    else:
        say(f"models now live on {now} partitions, before on {before}: start the workers again")
    if waiting:
        say(
            f"the old partitions hold {amount(waiting, 'event')} that nobody has learned. Once workers have read them, "
            "those of models that moved are dead letters: send them again with omdml letters resend"
        )
