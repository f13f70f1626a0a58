"""The programs in the README of the local services run as they are shown."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from deploy.local import KafkaCluster
from tests.support.pages.documents import block_that_begins, read


def test_the_program_with_single_servers_runs():
    exec(block_that_begins(read("deploy/local/README.md"), "from deploy.local import KafkaServer"), {})


@pytest.mark.deep
@pytest.mark.xdist_group("cluster")
def test_the_program_with_copies_elects_a_leader_whose_copy_was_not_in_sync(
    kafka_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To start four nodes is most of the work, and these have been started.
    monkeypatch.setattr("deploy.local.KafkaCluster", lambda: nullcontext(kafka_cluster))
    names: dict[str, object] = {}
    program = block_that_begins(read("deploy/local/README.md"), "from deploy.local import KafkaCluster")
    exec(program.replace("cluster.elect_unclean", "elected = cluster.elect_unclean"), names)
    assert names["elected"] in names["others"]
