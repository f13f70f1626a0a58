"""A session timeout that the brokers do not allow ends whole processes with the code for an operator."""

import pytest

from tests.support.forks import ForkedProcess
from tests.support.worlds import catalogue


@pytest.mark.parametrize("command", [("worker",), ("route", "--from", "clicks")], ids=" ".join)
def test_a_session_timeout_that_brokers_refuse_ends_with_code_3_and_what_to_set(command, tmp_path, kafka, new_topic):
    catalogue(tmp_path / "items")
    command = [new_topic() if word == "clicks" else word for word in command]
    # Brokers allow 6 to 1,800 seconds unless they are configured otherwise.
    (tmp_path / "omdml.toml").write_text(
        f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{new_topic()}"\nsession_timeout_s = 2000\n'
        '[store]\nurl = "dir:state"\n[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 2\n'
    )
    process = ForkedProcess(tmp_path, *command)
    assert process.wait(60) == 3, process.said[-2000:]
    last = process.said.strip().splitlines()[-1]
    assert last.startswith("omdml: ")
    assert "the brokers refuse log.session_timeout_s" in last
    assert "group.max.session.timeout.ms" in last
