"""Where routers begin if the cluster keeps no offsets of their group.

Only the offsets of their group say what was routed, and a cluster forgets them some days after the group's last member
left (``offsets.retention.minutes``). So a group without offsets may be new, or may have routed everything. In the
second case, routing from the beginning would teach everything twice.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence

import kafka.errors
import structlog
from kafka import TopicPartition
from kafka.admin import KafkaAdminClient, OffsetSpec
from kafka.structs import OffsetAndMetadata

from omdml.errors import SourceRefused
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.topic import administering, require

# A new cluster first has to make the topic that it keeps offsets in.
RETRY_S = 0.5

log = structlog.get_logger(__name__)


class Begin(enum.StrEnum):
    """What an operator decides if it is unknown what was routed."""

    BEGINNING = "beginning"
    END = "end"


def decide_beginning(options: KafkaOptions, origin: str, target: str, group: str, begin: Begin | None) -> None:
    """If a group has no offsets in ``origin``, write down for each partition where its routers begin.

    This is done before any router reads. So if a group has offsets, it has begun before, and a partition without an
    offset was added since. The cluster refuses this once the group has a member, because then another router has done
    it already.

    Raises
    ------
    SourceRefused
        Both topics hold records, and ``begin`` does not say which of those in ``origin`` are to be routed.
    SourceError
        The cluster is out of reach for ``options.start_timeout_s``, or refuses.
    """
    until = time.monotonic() + options.start_timeout_s
    while not _decided(options, origin, target, group, begin, last=time.monotonic() >= until):
        time.sleep(RETRY_S)


def _decided(options: KafkaOptions, origin: str, target: str, group: str, begin: Begin | None, last: bool) -> bool:
    """Try once; False if another try may succeed. The ``last`` try raises instead."""
    with administering(options, f"looking up the offsets of group {group!r}") as admin:
        try:
            _decide(admin, options, origin, target, group, begin)
        except (kafka.errors.RetriableError, kafka.errors.UnknownMemberIdError):
            if last:
                raise
            return False
    return True


def _decide(
    admin: KafkaAdminClient, options: KafkaOptions, origin: str, target: str, group: str, begin: Begin | None
) -> None:
    topic_id, partitions = require(admin, options, origin)
    # These ends are read before the group's offsets. If another router of this group wrote records below them, the
    # group had offsets before that, and they are found here unless the cluster has forgotten them.
    target_ends = _offsets(admin, _places(target, require(admin, options, target).partitions), OffsetSpec.LATEST)
    places = _places(origin, partitions)
    if is_known(admin, group, places):
        if begin is not None:
            log.warning(
                "begin_not_needed", group=group, reason="its offsets say where to go on", hint="leave out --begin"
            )
        return
    begins, ends = (_offsets(admin, places, spec) for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST))
    if begin is None and begins != ends and any(target_ends.values()):
        raise forgotten(options, origin, group)
    starts = {tp: OffsetAndMetadata((ends if begin is Begin.END else begins)[tp], topic_id, -1) for tp in places}
    for error in admin.alter_group_offsets(group, starts).values():
        if error is not kafka.errors.NoError:
            raise error(f"writing down where group {group!r} begins")


def is_known(admin: KafkaAdminClient, group: str, places: Sequence[TopicPartition]) -> bool:
    """Whether a group has an offset in any of these partitions. An offset in an open transaction does not count."""
    try:
        offsets = admin.list_group_offsets({group: list(places)})[group]
    except kafka.errors.GroupIdNotFoundError:
        return False
    return any(committed.offset >= 0 for committed in offsets.values())


def forgotten(options: KafkaOptions, origin: str, group: str) -> SourceRefused:
    """The error for a group whose offsets the cluster no longer has."""
    return SourceRefused(
        f"Kafka at {options.servers} keeps no offsets of group {group!r} in topic {origin!r}, so nobody can tell which "
        "events of this topic were routed: either no router ever ran, or none has run for longer than the cluster's "
        "offsets.retention.minutes. If no event was routed yet: omdml route --begin beginning. If all were: --begin "
        f"end. If those up to a time were: kafka-consumer-groups.sh --bootstrap-server {options.servers} "
        f"--group {group} --topic {origin} --reset-offsets --to-datetime 2026-01-31T23:59:00.000 --execute, "
        "with the time (UTC) when the last router ended"
    )


def _places(topic: str, partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(partitions)]


def _offsets(admin: KafkaAdminClient, places: Sequence[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
    return {tp: answer.offset for tp, answer in admin.list_partition_offsets(dict.fromkeys(places, spec)).items()}
