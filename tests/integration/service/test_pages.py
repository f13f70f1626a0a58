"""The commands and programs that the pages about Kafka and Redis show, on real servers."""

from __future__ import annotations

import json
import re

import numpy as np
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from deploy.local.ports import free_port
from tests.support.documents import FENCE, block_that_begins, plain_steps, read
from tests.support.sessions import READY, run_session

KAFKA = read("docs/kafka.md")


def test_the_service_runs_on_kafka_and_redis_as_the_page_shows(kafka, redis_server, new_topic, tmp_path):
    port, topic, clicks = free_port(), f"{new_topic()}-shown", new_topic()
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "items.npz", color=draw.random((300, 8)))
    labels = ["id,label", *(f"{item},{'warm' if item % 2 else 'cold'}" for item in range(300))]
    (tmp_path / "labels.csv").write_text("\n".join(labels))
    event = {"type": "triplet", "model": "shop-1", "query": "17", "relevant": "4", "irrelevant": "256"}
    (tmp_path / "clicks.jsonl").write_text(f"{json.dumps(event)}\n" * 20)
    configuration = block_that_begins(KAFKA, "[log]").replace("localhost:9092", kafka.servers)
    configuration = configuration.replace("redis://localhost:6379", redis_server.url)
    (tmp_path / "omdml.toml").write_text(configuration.replace('topic = "feedback"', f'topic = "{topic}"'))
    commands = [step.command for step in plain_steps(block_that_begins(KAFKA, "omdml topics create"))]
    create, doctor, worker, node, feed, simulate = (command.split("#")[0] for command in commands)
    programs = [match[2] for match in FENCE.finditer(KAFKA) if "KafkaProducer" in match[2]]
    code = "".join(programs).replace("localhost:9092", kafka.servers)
    code = code.replace('"feedback"', f'"{topic}"').replace('"clicks"', f'"{clicks}"')
    (tmp_path / "send.py").write_text(code)
    learned = (
        "until curl -s 'localhost:8080/search?model=shop-1&id=17' | grep -qE '\"version\":2[0-9]'; do sleep 0.2; done"
    )
    printed = run_session(
        ["omdml catalogue build items/ items.npz", create, doctor, f"{worker} & {node} &", READY, feed,
         "python send.py", learned, f"{simulate} --node http://localhost:8080 --comparisons 100"],
        tmp_path, port,
    )  # fmt: skip
    assert printed[1] == [f"topic {topic} created, 4 partitions"]
    assert printed[5] == ["clicks.jsonl: sent 20 triplets, refused 0"]
    assert re.search(r"\d+ searches, 100 comparisons", "\n".join(printed[-1]))


def test_a_topic_takes_the_settings_of_the_runbook(kafka, new_topic):
    topic = new_topic()
    lines = block_that_begins(read("deploy/RUNBOOK.md"), "kafka-configs.sh").splitlines()
    settings = dict(line.split("--add-config ")[1].split("=") for line in lines)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs=settings)
    admin = KafkaAdminClient(bootstrap_servers=kafka.servers)
    try:
        admin.alter_configs([resource])
    finally:
        admin.close()
    assert len(settings) == len(lines)


def test_a_server_takes_the_commands_of_the_runbook(any_redis):
    for line in block_that_begins(read("deploy/RUNBOOK.md"), "redis-cli CONFIG").splitlines():
        answer = any_redis.ask(line.removeprefix("redis-cli "))
        # The servers of the tests have no file of settings, which the page says that a rewrite needs.
        expected = "-ERR The server is running without a config file" if "REWRITE" in line else ("+OK", "$")
        assert answer.startswith(expected), (line, answer)
