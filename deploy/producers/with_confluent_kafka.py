"""Events from stdin to Kafka, by confluent-kafka: python with_confluent_kafka.py SERVERS TOPIC < events.jsonl."""

import json
import sys
from typing import Any

from confluent_kafka import Producer

servers, topic = sys.argv[1:]
# Without this partitioner, set log.partitioner = "crc32" for omdml.
clicks = Producer({"bootstrap.servers": servers, "acks": "all", "partitioner": "murmur2_random"})
failed: list[Any] = []


def delivered(error: Any, _: Any) -> None:
    """Note an event that the broker did not take."""
    if error is not None:
        failed.append(error)


for line in sys.stdin.buffer:
    model = json.loads(line)["model"]
    clicks.produce(topic, line.strip(), key=model.encode(), on_delivery=delivered)
    clicks.poll(0)
clicks.flush()
if failed:
    sys.exit(f"{len(failed)} events were not delivered, the first one because: {failed[0]}")
