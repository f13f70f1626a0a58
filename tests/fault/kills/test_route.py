"""Routers that are killed, paused, joined by others, or lose their broker double nothing and lose nothing."""

from __future__ import annotations

import random
import signal
import threading
import time

import pytest

from tests.fault.kills.killed_at import ROUTE_STEPS
from tests.support.deep import deep_after
from tests.support.processes import wait_for
from tests.support.servers.routes import Route

# How often a step is done when the second transaction does it first: each waits for its records twice.
# The first two of these are tried at every depth.
FIRST = ("offsets", "write", "begin", "committed")
TIMES = {"begin": 2, "write": 3, "offsets": 2, "committed": 2}


@pytest.fixture
def route(tmp_path, kafka, new_topic):
    with Route(tmp_path, kafka, new_topic) as route:
        yield route


def finish(route, router):
    """Have a router copy the remaining events, end it, and check the fate of all."""
    route.wait(router)
    assert router.stop() == 0, router.said
    route.check()


@pytest.mark.parametrize("step", deep_after(2, sorted(ROUTE_STEPS, key=FIRST.index)))
def test_a_router_killed_right_after_a_step_copies_each_event_once(route, step):
    # Given a router that dies right after this step of its second transaction, while events keep coming
    router, deadline = route.router("one", step, TIMES[step]), time.monotonic() + 90.0
    while router.running and time.monotonic() < deadline:
        route.send(20)
    assert router.wait(1) == -signal.SIGKILL, router.said[-2000:]
    # If a router is left alone then, I expect each event once.
    finish(route, route.router())


def test_the_router_of_another_member_waits_for_what_a_killed_one_left(route):
    # Given a router without a name of its own, killed between the offsets and the commit
    route.send(500)
    assert route.router("one", "offsets", 1, member=False).wait(90) == -signal.SIGKILL
    # If another one comes, I expect it to begin once the cluster gave the transaction up.
    finish(route, route.router("two"))


@pytest.mark.deep
def test_two_routers_killed_paused_and_without_a_broker_copy_each_event_once(route, kafka):
    draw, stop = random.Random(1), threading.Event()
    sender = threading.Thread(target=lambda: [route.send(200) for _ in range(60) if not stop.wait(0.1)])
    # Given two routers under load, one of them killed, or stopped for longer than its session, again and again
    routers = {name: route.router(name) for name in ("one", "two")}
    wait_for(lambda: "assigned" in routers["one"].said, "the first partitions", 60, routers["one"])
    sender.start()
    try:
        for turn in range(6):
            name = draw.choice(sorted(routers))
            # Faults come at any moment.
            stop.wait(draw.uniform(0.5, 3.0))
            if turn == 3:
                routers[name].pause()
                # Longer than its session lasts.
                stop.wait(9.0)
                routers[name].resume()
            elif turn == 4:
                kafka.kill()
                # How long the outage lasts.
                stop.wait(2.0)
                kafka.start()
            else:
                routers[name].kill()
                routers[name] = route.router(name)
        # If they are left alone then, I expect each event once.
        sender.join(120)
        route.wait(routers["one"], timeout_s=120)
        assert route.stop(*routers.values()) == [0, 0], [router.said for router in routers.values()]
        route.check()
    finally:
        stop.set()
        for router in routers.values():
            router.close()


def test_a_router_whose_broker_is_away_ends_within_seconds(route, kafka):
    route.send(100)
    router = route.router()
    route.wait(router)
    kafka.kill()
    wait_for(lambda: "kafka_out_of_reach" in router.said, "the router to report the outage", 30, router)
    assert router.stop(15.0) == 0, router.said
