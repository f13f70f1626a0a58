"""The first program in the README of the local services runs as it is shown."""

from tests.support.documents import block_that_begins, read


def test_the_program_with_single_servers_runs():
    exec(block_that_begins(read("deploy/local/README.md"), "from deploy.local import KafkaServer"), {})
