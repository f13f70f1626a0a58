"""Settings of the log and of the store under which something may be lost, each with what to do about it.

They are warnings: events are learned all the same, until a broker, a server or a machine goes down.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from omdml.streams.addresses import SCHEMES, masked
from omdml.streams.kafka.safety import TopicSafety, offsets_kept_s, topic_safety
from omdml.streams.kafka.topic import look_up
from omdml.streams.stores.redis.safety import ServerSafety, server_safety
from omdml.workers.configuration.config import FileLog, KafkaLog
from omdml.workers.doctor.findings import Remark, error, warning
from omdml.workers.wiring.dead_letters import letters_topic
from omdml.workers.wiring.kafka_topic import connection
from omdml.workers.wiring.router import routed_topics

DAY_S = 86_400
MB = 1e6
# A disk with fewer free bytes counts as full, because a checkpoint may need more.
NO_ROOM = 1 << 20
# A server that uses this share of its memory is nearly full.
NEARLY_FULL = 0.9
# Long enough to repair a worker that ends on a Friday, before the events that it did not learn are deleted.
SAFE_RETENTION_S = 7 * DAY_S
READ_ONLY = "If the file system is read-only, the kernel's log (dmesg) says why"
RELEARNED = "workers notice that, and learn again from the log what it forgot"


def of_log(log: FileLog | KafkaLog) -> str | list[Remark]:
    """What the log, its dead letters and the topics that are routed into it may lose; raises SourceError."""
    if isinstance(log, FileLog):
        lines, dead_letters = Path(log.path), Path(log.letters)
        seen = [
            *(closed_log(lines) or full_disk(f"feedback log {lines}", lines)),
            *(closed(dead_letters) or full_disk(f"dead letters {dead_letters}", dead_letters)),
        ]
        return seen or f"{log.path} is as safe as its disk"
    options, feedback = connection(log), topic_safety(connection(log), log.topic)
    remarks = [*unsafe_topic(log.topic, feedback, FEEDBACK, log.servers)]
    if look_up(options, letters := letters_topic(log)):
        remarks += unsafe_topic(letters, topic_safety(options, letters), LETTERS, log.servers)
    for origin in routed_topics(log):
        if look_up(options, origin):
            safety = topic_safety(options, origin)
            remarks += [
                *unsafe_topic(origin, safety, ROUTED, log.servers),
                *forgotten_routers(origin, safety, offsets_kept_s(options)),
            ]
    return [warning(text) for text in remarks] or (
        f"{feedback.replicas} copies, {feedback.min_insync} of them acknowledge, events are kept {kept_for(feedback)}"
    )


def safety_of(url: str) -> ServerSafety | None:
    """What the server at this address promises, None if it is no server; raises StoreError."""
    return server_safety(url) if url.partition(":")[0] in SCHEMES else None


def of_store(url: str, safety: ServerSafety | None) -> str | list[Remark]:
    """Settings under which the store may lose writes that it acknowledged, and whether it has room for more."""
    if safety is None:
        kind, _, path = url.partition(":")
        if kind != "dir":
            return f"what {masked(url)} may lose is not checked"
        folder = Path(path)
        return closed(folder) or full_disk(masked(url), folder) or f"{masked(url)} is as safe as its disk"
    return [*full(safety), *(warning(text) for text in unsafe_server(safety))] or safe_server(safety)


def closed(folder: Path) -> list[Remark]:
    """A remark on a folder that only workers write to, if this user may not, or none."""
    if not folder.exists() or os.access(folder, os.W_OK):
        return []
    return [warning(f"{folder} cannot be written by this user. A node of this user does not need to, but a worker of "
                    f"this user waits: give it the right to write. {READ_ONLY}")]  # fmt: skip


def closed_log(path: Path) -> list[Remark]:
    """A remark on a feedback log in files that this user may not write to, or none.

    Lines are appended to its newest file. In its folder are new files, and how far its worker has read.
    """
    folder, newest = (path.parent, [path]) if path.is_file() else (path, sorted(path.glob("*.jsonl"))[-1:])
    part = next((part for part in (folder, *newest) if part.exists() and not os.access(part, os.W_OK)), None)
    if part is None:
        return []
    text = (f"feedback log {path}: {part} cannot be written by this user. A node of this user refuses feedback, or a "
            f"worker of this user cannot start: give it the right to write. {READ_ONLY}")  # fmt: skip
    # Services may run as another user than the one who asks. Nobody can write to what is read-only.
    return [error(text) if os.statvfs(part).f_flag & os.ST_RDONLY else warning(text)]


def full_disk(what: str, path: Path) -> list[Remark]:
    """A remark on what lies on a disk without room, or none."""
    place = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    disk = os.statvfs(place)
    free = disk.f_bavail * disk.f_frsize
    if free >= NO_ROOM and (disk.f_favail or not disk.f_files):
        return []
    room = f"{free:,} bytes" if free < NO_ROOM else "no file"
    return [
        error(
            f"{what}: its disk has room for {room} more, so writes are refused. Make room: senders send again what was "
            "refused, and workers go on by themselves"
        )
    ]


def full(safety: ServerSafety) -> list[Remark]:
    """A remark on a server that has little memory left, or none."""
    if not safety.max_bytes or safety.used_bytes < NEARLY_FULL * safety.max_bytes:
        return []
    used = f"it uses {safety.used_bytes / MB:,.1f} MB of memory, and maxmemory is {safety.max_bytes / MB:,.1f} MB"
    action = "raise maxmemory (redis-cli CONFIG SET maxmemory 4gb, for instance), and set it in the server's file too"
    if safety.used_bytes < safety.max_bytes:
        return [warning(f"{used}. Once it is full it refuses writes, and nothing is learned: {action}")]
    return [error(f"{used}. It is full and refuses writes, so workers wait, and nothing new goes live: {action}")]


class Use(NamedTuple):
    """What a topic is for: what its records are called, what their loss leads to, and their early deletion."""

    records: str
    after_loss: str
    after_deletion: str


FEEDBACK = Use(
    "events",
    "these events are lost, and workers stop until they are started with --accept-gap",
    "if events are deleted before they are learned, workers stop at the gap; no replay can reach further back",
)
LETTERS = Use(
    "dead letters",
    "these letters are lost, with the events that they hold for omdml letters resend",
    "a dead letter that was deleted can be neither explained nor sent again",
)
ROUTED = Use(
    "events",
    "these events are lost, and routers stop until they are started with --accept-gap",
    "if events are deleted before they are routed, routers stop at the gap",
)


def forgotten_routers(topic: str, safety: TopicSafety, kept_s: float | None) -> Iterator[str]:
    """A warning if Kafka may forget how far a topic was routed while the topic still holds the events.

    Parameters
    ----------
    kept_s
        For how long a group's offsets outlive its last member; None if that may not be asked.
    """
    if kept_s is not None and (safety.retention_s is None or safety.retention_s > kept_s):
        kept = "for ever" if safety.retention_s is None else f"for {duration(safety.retention_s)}"
        yield (
            f"topic {topic!r} keeps events {kept}, but Kafka forgets how far they were routed {duration(kept_s)} after "
            "the last router ended. A router that is started later than that stops, and asks where to go on (--begin). "
            "Raise offsets.retention.minutes of the brokers, or keep a router running"
        )


def set_topic(servers: str, topic: str) -> str:
    """The beginning of the command that sets something of a topic."""
    return (
        f"kafka-configs.sh --bootstrap-server {servers} --alter --entity-type topics --entity-name {topic} --add-config"
    )


def unsafe_topic(topic: str, safety: TopicSafety, use: Use, servers: str) -> Iterator[str]:
    """What is unsafe about a topic of these brokers, a sentence each."""
    set_it = set_topic(servers, topic)
    if safety.replicas == 1:
        yield (
            f"topic {topic!r} has one copy of each partition: {use.records} are lost with their broker, and nothing is "
            "learned while it is down. Give it three copies (kafka-reassign-partitions.sh)"
        )
    elif safety.min_insync == 1:
        yield (
            f"topic {topic!r} has {safety.replicas} copies, and min.insync.replicas is 1: an event is "
            f"acknowledged as soon as one broker has it, and lost if that broker is lost. Set it: {set_it} "
            "min.insync.replicas=2"
        )
    elif safety.min_insync >= safety.replicas:
        yield (
            f"topic {topic!r} has {safety.replicas} copies, and min.insync.replicas is {safety.min_insync}: senders "
            f"are refused as soon as one broker is down. Give it another copy, or set "
            f"min.insync.replicas lower: {set_it} min.insync.replicas={safety.replicas - 1}"
        )
    if safety.unclean_election:
        yield (
            f"topic {topic!r} has unclean.leader.election.enable=true: a broker that lacks acknowledged events may "
            f"become the leader. Then {use.after_loss}. Set it: {set_it} unclean.leader.election.enable=false"
        )
    if "compact" in safety.cleanup_policy:
        yield (
            f"topic {topic!r} has cleanup.policy={safety.cleanup_policy}, which keeps only the newest event of each "
            f"key. Set it: {set_it} cleanup.policy=delete"
        )
    yield from _short_retention(topic, safety, use, set_it)


def _short_retention(topic: str, safety: TopicSafety, use: Use, set_it: str) -> Iterator[str]:
    if safety.retention_s is not None and safety.retention_s < SAFE_RETENTION_S:
        yield (
            f"topic {topic!r} deletes {use.records} after {duration(safety.retention_s)}, expected "
            f"{duration(SAFE_RETENTION_S)} or more: {use.after_deletion}. To keep them for ever: {set_it} "
            "retention.ms=-1"
        )
    if safety.retention_bytes is not None:
        yield (
            f"topic {topic!r} keeps {safety.retention_bytes:,} bytes of each partition and deletes the oldest "
            f"{use.records} beyond that, even if they are new: {use.after_deletion}. Set it: {set_it} "
            "retention.bytes=-1"
        )


def kept_for(safety: TopicSafety) -> str:
    """How long the log keeps events, in words."""
    if safety.retention_s is None:
        return "for ever"
    return f"for {duration(safety.retention_s)}: no replay, and no backup of the store, may reach back further"


def duration(seconds: float) -> str:
    """A length of time in the largest unit that makes it one or more."""
    units = (("day", DAY_S), ("hour", 3600), ("minute", 60), ("second", 1))
    unit, length_s = next((each for each in units if seconds >= each[1]), units[-1])
    count = f"{seconds / length_s:.3g}"
    return f"{count} {unit}{'' if count == '1' else 's'}"


def unsafe_server(safety: ServerSafety) -> Iterator[str]:
    """What is unsafe about a server, a sentence each."""
    if safety.is_replica:
        yield "it is a replica: workers cannot write to it. Name the primary in store.url"
    if not safety.append_only:
        yield _without_append_only(safety.save)
    elif safety.fsync == "no":
        yield (
            "appendfsync is no: if its machine goes down, it loses the writes that the operating system had not put on "
            f"disk yet, often those of half a minute; {RELEARNED}. Set appendfsync everysec"
        )
    if safety.policy.startswith("allkeys"):
        yield (
            f"maxmemory-policy {safety.policy} drops what was learned if memory is short. Set noeviction, or one of "
            "volatile-*"
        )
    if safety.replicas and safety.min_replicas == 0:
        yield (
            f"it has {safety.replicas} replicas and waits for none: one that takes over lacks the newest writes; "
            f"{RELEARNED}, and nodes may go back by some versions meanwhile. Set min-replicas-to-write 1 and "
            "min-replicas-max-lag 10, which bound how much it lacks"
        )


def _without_append_only(save: str | None) -> str:
    if save:
        longest = max(int(seconds) for seconds in save.split()[::2])
        return (
            f"appendonly is no, save points are {save!r}: after a crash it lacks what came since the last one, up to "
            f"{duration(longest)} or more; {RELEARNED}. Set appendonly yes"
        )
    points = "it has no save points" if save == "" else "this user may not ask whether it has save points"
    return (
        f"appendonly is no, and {points}: a restart may forget every model. Workers then stop, until the store is "
        "restored, or omdml topics rewind has the whole log learned again. Set appendonly yes"
    )


def safe_server(safety: ServerSafety) -> str:
    """What even a safe server may lose."""
    if safety.fsync == "always":
        return "every write is on disk before it is acknowledged"
    if safety.fsync is None:
        return "appendonly is yes; this user may not ask which appendfsync and which save points it has"
    return (
        f"appendonly is yes, appendfsync {safety.fsync}: if its machine goes down, the last second is lost; {RELEARNED}"
    )
