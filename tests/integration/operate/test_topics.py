"""``omdml topics``: the feedback log's topic, made from the configuration."""

from __future__ import annotations

import uuid

from click.testing import CliRunner

from deploy.local import KafkaServer
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.topic import open_admin, require
from omdml.workers.cli import main


def run(*arguments, command="create", **environment):
    return CliRunner().invoke(main, ["topics", command, *arguments], env=environment)


def test_a_topic_is_created_fit_for_feedback_and_left_as_it_is_the_second_time(kafka: KafkaServer) -> None:
    name = f"clicks-{uuid.uuid4().hex}"
    log = {"OMDML_LOG__KIND": "kafka", "OMDML_LOG__SERVERS": kafka.servers, "OMDML_LOG__TOPIC": name}
    first = run("--partitions", "3", **log)
    second = run("--partitions", "5", **log)

    assert first.output == f"topic {name} created, 3 partitions\n"
    assert (first.exit_code, second.exit_code) == (0, 1)
    assert f"topic {name} exists already with 3 partitions, nothing was changed" in second.output
    assert "omdml topics grow --partitions 5" in second.output
    assert run("--partitions", "3", **log).exit_code == 0
    options = KafkaOptions(servers=kafka.servers)
    admin = open_admin(options)
    try:
        assert require(admin, options, name).partitions == 3
    finally:
        admin.close()
        kafka.delete_topic(name)


def test_the_topic_of_a_router_is_created_beside_the_configured_one(kafka: KafkaServer) -> None:
    name = f"clicks-{uuid.uuid4().hex}"
    log = {"OMDML_LOG__KIND": "kafka", "OMDML_LOG__SERVERS": kafka.servers}
    created = run("--topic", name, "--partitions", "2", **log)
    again = run("--topic", name, "--partitions", "4", **log)
    kafka.delete_topic(name)
    assert again.exit_code == 1
    command = f"kafka-topics.sh --bootstrap-server {kafka.servers} --alter --topic {name} --partitions 4"
    assert f"to add partitions, run {command}" in again.output
    assert created.output == f"topic {name} created, 2 partitions\n"


def test_a_topic_grows_to_multiples_of_what_it_was_and_to_nothing_else(kafka: KafkaServer, new_topic, tmp_path) -> None:
    name = new_topic(4)
    log = {"OMDML_LOG__KIND": "kafka", "OMDML_LOG__SERVERS": kafka.servers, "OMDML_LOG__TOPIC": name}
    log["OMDML_STORE__URL"] = f"dir:{tmp_path}/state"
    for count, why in ((6, "6 is not a multiple of that"), (2, "Kafka cannot remove any")):
        refused = run("--partitions", str(count), command="grow", **log)
        assert (refused.exit_code, why in " ".join(refused.output.split())) == (2, True), refused.output
    grown = run("--partitions", "8", command="grow", **log)
    assert grown.output.startswith("the topic has 8 partitions, it had 4\n")
    assert "omdml topics rehome" in grown.output
    assert "already with 8 partitions" in run("--partitions", "8", **log).output


def test_a_log_in_files_needs_no_topic() -> None:
    refused = run(OMDML_LOG__KIND="file")
    assert refused.exit_code == 2
    assert "log.kind is 'file'" in refused.output
