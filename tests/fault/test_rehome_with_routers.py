"""Partitions are added and models move onto them, while routers run, senders begin again at once, and workers are
killed: every event is learned once."""

from __future__ import annotations

import random

import pytest
from kafka import KafkaAdminClient

from tests.fault.chaos.breaking import routers
from tests.fault.chaos.servers import Servers
from tests.fault.chaos.service import LIMIT_S, NODE, PARTITIONS, WORKERS, Service
from tests.fault.chaos.verdict import judge
from tests.support.processes import wait_for

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("chaos")]


class Quiet(Service):
    """Fewer events: each is looked up, and many are sent again."""

    rate = 100


@pytest.fixture
def service(tmp_path):
    with Servers() as servers:
        valkey = servers.store("valkey")
        with Quiet(tmp_path, servers, valkey.url, valkey.url_by_detour) as service:
            yield service


def command(service, *words):
    """The exit code and the output of a command."""
    process = service.start_process(NODE, "omdml.workers.cli", *words)
    return process.wait(LIMIT_S), process.said


def add_partitions(service):
    """Double the partitions of the topic."""
    admin = KafkaAdminClient(bootstrap_servers=service.servers.kafka.servers)
    admin.create_partitions({service.topic: 2 * PARTITIONS})
    admin.close()


def kill_a_worker(service, chance):
    """Kill a worker; its supervisor starts it again."""
    number = chance.randrange(WORKERS)
    service.workers[number].kill()
    start_workers(service, [number])


def wait_until_all_adds_up(service):
    """Senders rest: return once the oracle's sums hold."""
    numbers = [str(number).encode() for number in range(service.load.sent)]

    def adds_up():
        return not service.oracle().findings(service.checkpoints(), service.letters(), numbers)

    service.wait(adds_up, "every event to be learned, held out or a letter, once")


def learning_is_missing(service):
    """Whether the command refuses because of events that came since the workers ended."""
    code, output = command(service, "topics", "rehome")
    assert code == 2, output[-2000:]
    return "events are not learned and saved yet" in " ".join(output.split())


def rehomed(service):
    """Run ``omdml topics rehome`` until it succeeds, and do what each refusal says; returns the last output.

    A worker that was killed is a member until its session ends, and may have left events that are not learned.
    """
    outcomes = []

    def succeeds():
        outcomes.append(command(service, "topics", "rehome"))
        if outcomes[-1][0] == 0:
            return True
        before = service.said("partition_assigned")
        start_workers(service)
        service.wait(lambda: service.said("partition_assigned") >= before + WORKERS, "workers to own partitions")
        wait_until_all_adds_up(service)
        stop_workers(service)
        return False

    wait_for(succeeds, "omdml topics rehome to succeed", LIMIT_S)
    return outcomes[-1][1]


def rehomed_while_events_come(service):
    """Run ``omdml topics rehome`` until it succeeds, and do what each refusal says, while senders go on sending."""

    def succeeds():
        code, output = command(service, "topics", "rehome", "--senders-go-on")
        # The file has the output of earlier attempts before the output of this one.
        refusal = " ".join(output.rpartition("omdml: ")[2].split())
        if code != 0 and "has members" not in refusal:
            assert "Start the workers" in refusal
            before = service.said("partition_assigned")
            start_workers(service)
            service.wait(lambda: service.said("partition_assigned") >= before + PARTITIONS, "workers to own all")
            stop_workers(service)
        return code == 0

    wait_for(succeeds, "omdml topics rehome to succeed while events come", LIMIT_S)


def start_workers(service, numbers=range(WORKERS)):
    """Start workers, and wait until each can be stopped: one of them may own all partitions before the other."""
    before = service.said("worker_started")
    for number in numbers:
        service.start(number)
    service.wait(lambda: service.said("worker_started") >= before + len(numbers), "workers to start")


def stop_workers(service):
    for worker in service.workers:
        assert worker.stop() == 0, worker.said[-2000:]


def test_rehome_beside_routers_and_killed_workers_learns_each_event_once(service):
    chance = random.Random(4)
    routers.begin(service)
    service.all_learn()
    add_partitions(service)
    # If routers and senders go on while the workers are stopped, I expect the command to refuse, and to say why.
    stop_workers(service)
    assert learning_is_missing(service)
    # If senders rest until all is learned, and a worker is killed meanwhile, I expect it to succeed beside routers.
    start_workers(service)
    service.load.rest()
    kill_a_worker(service, chance)
    wait_until_all_adds_up(service)
    stop_workers(service)
    assert all(router.running for router in service.routers)
    assert f"models now live on {2 * PARTITIONS} partitions" in rehomed(service)
    # If routers and senders go on before any worker does, and workers and routers are killed again and again, I expect
    # the oracle's sums to hold, and again once everything that became a letter was sent again.
    service.load.go_on()
    start_workers(service)
    for _ in range(2):
        service.learns()
        kill_a_worker(service, chance)
        routers.killed(service, chance)
    service.learns()
    service.load.rest()
    wait_until_all_adds_up(service)
    assert service.letters(), "no event came by a partition on which its model does not live"
    code, output = command(service, "letters", "resend")
    assert code == 0, output[-2000:]
    wait_until_all_adds_up(service)
    verdict = judge(service)
    assert (verdict.lost, verdict.doubled) == (0, 0)


def test_rehome_while_senders_and_routers_go_on_gives_each_event_one_fate(service):
    routers.begin(service)
    service.all_learn()
    add_partitions(service)
    service.workers[0].kill()
    assert service.workers[1].stop() == 0
    rehomed_while_events_come(service)
    start_workers(service)
    service.learns()
    service.load.rest()
    wait_until_all_adds_up(service)
    assert command(service, "letters", "resend")[0] == 0
    wait_until_all_adds_up(service)
    verdict = judge(service)
    assert (verdict.lost, verdict.doubled) == (0, 0)
