"""The commands and programs that the pages about Kafka and Redis show, on real servers."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np

from deploy.local import RedisServer
from deploy.local.ports import free_port
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.safety import topic_safety
from omdml.streams.stores.redis.safety import server_safety
from tests.support.pages.documents import FENCE, block_that_begins, plain_steps, read
from tests.support.pages.sessions import READY, run_session

KAFKA, RUNBOOK = read("docs/kafka.md"), read("deploy/RUNBOOK.md")


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
    create, doctor, worker, node, feed = (command.split("#")[0] for command in commands)
    (simulate,) = re.findall("`(omdml simulate [^`]+)`", KAFKA)
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
        tmp_path, port, {"OMDML_LOG__GROUP": topic},
    )  # fmt: skip
    assert printed[1] == [f"topic {topic} created, 4 partitions"]
    assert printed[5] == ["clicks.jsonl: sent 20 triplets, refused 0"]
    assert re.search(r"\d+ searches, 100 comparisons", "\n".join(printed[-1]))


def test_a_topic_takes_the_settings_of_the_runbook(kafka, new_topic):
    topic = new_topic()
    for line in block_that_begins(RUNBOOK, "kafka-configs.sh").splitlines():
        command = line.replace("BROKER:9092", kafka.servers).replace("feedback", topic)
        printed = kafka.configs(*shlex.split(command)[1:])
    # The last one shows what the others set.
    assert "retention.ms=2592000000" in printed
    safety = topic_safety(KafkaOptions(servers=kafka.servers), topic)
    assert (safety.min_insync, safety.unclean_election, safety.retention_s) == (2, False, 30 * 86_400)


def redis_cli(line, server):
    """Call a line of the runbook with the real redis-cli."""
    words = shlex.split(line.replace("redis://HOST:6379/0", server.url))
    assert words[0] == "redis-cli"
    return server.cli(*words[1:])


def test_a_server_takes_the_settings_of_the_runbook_and_keeps_them(tmp_path):
    file = tmp_path / "redis.conf"
    file.write_text("maxmemory-policy allkeys-lru\n")
    lines = block_that_begins(RUNBOOK, "redis-cli CONFIG").splitlines()
    with RedisServer(durable=False, settings=file) as server:
        printed = [redis_cli(line, server).strip() for line in lines]
        assert printed[:-1] == ["OK"] * (len(lines) - 1)
        assert "used_memory:" in printed[-1]
        seen = server_safety(server.url)
        assert (seen.append_only, seen.policy) == (True, "noeviction")
    assert {"appendonly yes", "maxmemory-policy noeviction"} <= set(file.read_text().splitlines())
    # A server without a file says what the page says that it says.
    with RedisServer(durable=False) as server:
        (rewrite,) = (line for line in lines if "REWRITE" in line)
        answer = redis_cli(rewrite, server).strip()
    assert answer == "ERR The server is running without a config file"
    assert answer in " ".join(RUNBOOK.split())


def test_a_server_goes_back_to_a_copy_as_the_runbook_says(any_redis, tmp_path, monkeypatch):
    any_redis.ask("SET learned much")
    monkeypatch.chdir(tmp_path)
    (copy,) = block_that_begins(RUNBOOK, "redis-cli -u").splitlines()
    redis_cli(copy, any_redis)
    server = type(any_redis)(durable=False)
    with server:
        server.stop()
        (server.data / "dump.rdb").write_bytes((tmp_path / "copy.rdb").read_bytes())
        server.start()
        assert redis_cli("redis-cli GET learned", server).strip() == "much"
        (switch,) = re.findall(r"4\. Run `(redis-cli [^`]+)`", RUNBOOK)
        assert redis_cli(switch, server).strip() == "OK"
        assert server_safety(server.url).append_only
