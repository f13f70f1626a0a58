"""``omdml topics``: the feedback log's topic, made from the configuration."""

from __future__ import annotations

import uuid

from click.testing import CliRunner

from deploy.local import KafkaServer
from streams.kafka.options import KafkaOptions
from streams.kafka.topic import open_admin, require
from workers.cli import main


def run(*arguments, **environment):
    return CliRunner().invoke(main, ["topics", "create", *arguments], env=environment)


def test_a_topic_is_created_fit_for_feedback_and_left_as_it_is_the_second_time(kafka: KafkaServer) -> None:
    name = f"clicks-{uuid.uuid4().hex}"
    log = {"OMDML_LOG__KIND": "kafka", "OMDML_LOG__SERVERS": kafka.servers, "OMDML_LOG__TOPIC": name}
    first = run("--partitions", "3", **log)
    second = run("--partitions", "5", **log)

    assert first.output == f"topic {name} created, 3 partitions\n"
    assert second.output == "the topic is there already\n"
    options = KafkaOptions(servers=kafka.servers)
    admin = open_admin(options)
    try:
        assert require(admin, options, name).partitions == 3
    finally:
        admin.close()
        kafka.delete_topic(name)


def test_a_log_in_files_needs_no_topic() -> None:
    refused = run(OMDML_LOG__KIND="file")
    assert refused.exit_code == 2
    assert "log.kind is 'file'" in refused.output
