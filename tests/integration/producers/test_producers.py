"""The producers in deploy/producers, each with its own client, against a real broker: keyed, and where omdml looks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition

from deploy.local import KafkaServer, ServiceError
from deploy.local.fetching import cache, fetch
from deploy.local.fetching.tool import run
from omdml.streams.partitioners import by_murmur2
from tests.support.processes import ROOT
from tests.support.waiting import until

PRODUCERS = ROOT / "deploy/producers"
CONFLUENT, KAFKAJS = "confluent-kafka==2.16.1", "kafkajs@2.2.4"
PARTITIONS, MODELS = 5, ["shop", *(f"shop-{number}" for number in range(40)), "größe", "店"]


def of_kafka_python() -> tuple[list[str], dict[str, str]]:
    """Command and environment of a producer; raises ServiceError if its client cannot be had."""
    return [sys.executable, "with_kafka_python.py"], {}


def of_confluent_kafka() -> tuple[list[str], dict[str, str]]:
    """The wheel is fetched by pip."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]

    def build(into: Path) -> None:
        run([*pip, into, CONFLUENT], where=CONFLUENT, do="let pip reach its package index")

    return [sys.executable, "with_confluent_kafka.py"], {"PYTHONPATH": str(cache.once(CONFLUENT, build))}


def of_kafkajs() -> tuple[list[str], dict[str, str]]:
    """The package is fetched by npm."""
    npm = ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]

    def build(into: Path) -> None:
        run([*npm, into, KAFKAJS], where=KAFKAJS, do="put node and npm on PATH, and let npm reach its registry")

    folder = cache.once(KAFKAJS, build)
    run(["node", "--version"], where="node.js", do="put node on PATH")
    return ["node", "with_kafkajs.js"], {"NODE_PATH": str(folder / "node_modules")}


def of_kafka_clients() -> tuple[list[str], dict[str, str]]:
    """Kafka's own jars hold the client; Java compiles the one file by itself, if it has its compiler."""
    java, jars = fetch.kafka()
    if "jdk.compiler" not in run([java, "--list-modules"], where="Java", do="install a JDK, 17 or newer"):
        raise ServiceError("this Java has no compiler", where=str(java), do="install a JDK, 17 or newer")
    return [str(java), "-cp", f"{jars}/*", "WithKafkaClients.java"], {}


@pytest.mark.parametrize("prepare", [of_kafka_python, of_confluent_kafka, of_kafkajs, of_kafka_clients])
def test_a_producer_keys_by_model_and_chooses_the_models_home(kafka: KafkaServer, new_topic, prepare) -> None:
    # Given events of many models, and the client
    try:
        command, environment = prepare()
    except ServiceError as error:
        pytest.skip(str(error))
    topic = new_topic(PARTITIONS)
    lines = [json.dumps({"type": "page", "model": name, "query": "i0", "shown": ["a", "b"], "clicked": ["b"]})
             for name in MODELS for _ in range(3)]  # fmt: skip
    # When the producer sends them
    done = subprocess.run(
        [*command, kafka.servers, topic], input="\n".join(lines) + "\n", cwd=PRODUCERS, text=True, timeout=120,
        env={**os.environ, **environment}, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    # Then each event lies on its model's home, under its name, as it was written
    consumer = KafkaConsumer(bootstrap_servers=kafka.servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
    records = []

    def all_read() -> bool:
        records.extend(record for batch in consumer.poll(timeout_ms=100).values() for record in batch)
        return len(records) >= len(lines)

    until(all_read)
    consumer.close()
    assert sorted(record.value.decode() for record in records) == sorted(lines)
    for record in records:
        assert record.key.decode() == json.loads(record.value)["model"]
        assert record.partition == by_murmur2(record.key, PARTITIONS)


@pytest.mark.parametrize("prepare", [of_kafka_python, of_confluent_kafka, of_kafkajs, of_kafka_clients])
def test_a_producer_that_cannot_deliver_ends_with_an_error(kafka: KafkaServer, new_topic, prepare) -> None:
    try:
        command, environment = prepare()
    except ServiceError as error:
        pytest.skip(str(error))
    too_large = json.dumps({"model": "shop", "padding": "x" * 3_000_000})
    done = subprocess.run(
        [*command, kafka.servers, new_topic(1)], input=too_large + "\n", cwd=PRODUCERS, text=True, timeout=120,
        env={**os.environ, **environment}, capture_output=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr
