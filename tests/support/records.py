"""Reads logs, letters, stores and metrics without code of the product, from the documented formats."""

from __future__ import annotations

import base64
import json
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition

NO_HEADERS: Mapping[str, bytes] = {}
# Partition and offset of a record.
Place = tuple[int, int]


class Event(NamedTuple):
    partition: int
    offset: int
    value: bytes
    headers: Mapping[str, bytes] = NO_HEADERS

    @property
    def place(self) -> Place:
        return self.partition, self.offset

    @property
    def model(self) -> str | None:
        """The model that the payload names; None if it is not a JSON object or names no model."""
        try:
            name = json.loads(self.value)["model"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return name if isinstance(name, str) else None


def read_topic(servers: str, topic: str, limit_s: float = 60.0) -> list[Event]:
    """Every committed record of a topic in Kafka, partition by partition; fails if none comes for ``limit_s``."""
    consumer = KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False)
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends, log, deadline = consumer.end_offsets(partitions), list[Event](), time.monotonic() + limit_s
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            positions = [(consumer.position(partition), ends[partition]) for partition in partitions]
            assert time.monotonic() < deadline, (
                f"no record of topic {topic} for {limit_s} s; positions and ends: {positions}"
            )
            polled = consumer.poll(500)
            if polled:
                deadline = time.monotonic() + limit_s
            for records in polled.values():
                log += (
                    Event(record.partition, record.offset, record.value or b"", dict(record.headers))
                    for record in records
                )
    finally:
        consumer.close()
    return sorted(log, key=lambda event: event.place)


def read_segments(folder: Path) -> Iterator[Event]:
    """Every whole line of a log in a folder of segments."""
    for segment in sorted(folder.glob("*.jsonl"), key=lambda path: int(path.stem)):
        offset = int(segment.stem) << 40
        with segment.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n") and line.strip():
                    yield Event(0, offset, *unwrapped(line))
                offset += len(line)


def unwrapped(line: bytes) -> tuple[bytes, Mapping[str, bytes]]:
    """The payload and the headers in a line: those of some records lie in an envelope."""
    if not line.startswith(b'{"record":'):
        return line, NO_HEADERS
    record = json.loads(line)["record"]
    return bytes_of(record["value"]), {name: bytes_of(text) for name, text in record["headers"]}


def bytes_of(text: str | dict[str, str]) -> bytes:
    """The bytes of an entry of an envelope, which has them as text or in base64."""
    return text.encode() if isinstance(text, str) else base64.b64decode(text["base64"])


def read_letters(lines: Iterable[bytes]) -> tuple[dict[Place, set[str]], set[Place]]:
    """The reasons that letters give, by place, and the places whose events were sent again."""
    results: dict[Place, set[str]] = defaultdict(set)
    resent = set()
    for line in map(json.loads, lines):
        if "resent" in line:
            (_, number), offset = line["resent"]
            resent.add((number, offset))
        elif "dismissed" not in line:
            results[line["partition"][1], line["offset"]].add(line["reason"])
    return results, resent


def read_checkpoint(data: bytes) -> dict[str, Any]:
    """The header of a checkpoint. Safetensors begin with a length and a header in JSON."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return dict(json.loads(header["__metadata__"]["omdml"])["checkpoint"])


def placement_in_folder(store: Path) -> bytes:
    """The placement of the one log whose models a store in a folder keeps."""
    (path,) = (store / "placements").iterdir()
    return path.read_bytes()


def placement_in_redis(client: Any, prefix: str) -> bytes:
    """The placement of the one log whose models Redis or Valkey keeps under a prefix, by any client of these."""
    (key,) = client.scan_iter(f"{prefix}:placement:*")
    return client.get(key)


def checkpoints_in_folder(store: Path) -> list[bytes]:
    """The newest checkpoint of every model in a store that is a folder."""
    models = (sorted(model.glob("checkpoints/*/*.checkpoint")) for model in sorted((store / "models").iterdir()))
    return [files[-1].read_bytes() for files in models if files]


def checkpoints_in_redis(client: Any, prefix: str) -> list[bytes]:
    """The newest checkpoint of every model in a store that is Redis or Valkey, by any client of these."""
    return [client.hget(key, "data") for key in sorted(client.scan_iter(f"{prefix}:*:checkpoint"))]


def read_outcomes(metrics: Iterable[str]) -> Counter[str]:
    """Events by outcome, from the metrics of workers."""
    results: Counter[str] = Counter()
    for text in metrics:
        for outcome, value in re.findall(
            r'^omdml_worker_events_total\{.*outcome="(\w+)".*\} (\S+)$', text, re.MULTILINE
        ):
            results[outcome] += int(float(value))
    return results
