"""Workers that are killed: at any moment, and right after any step of the protocol."""

from __future__ import annotations

import signal
from random import Random

from tests.fault.chaos.service import LIMIT_S, WORKERS, Service
from tests.fault.kills.killed_at import STEPS

# Steps done once a partition, or a model: a worker that has one does them once.
ONCE = ("start", "claim")


def any_moment(service: Service, chance: Random) -> None:
    """Kill a worker; its supervisor starts it again."""
    number = chance.randrange(WORKERS)
    service.workers[number].kill()
    service.start(number)


def every_step(service: Service, chance: Random) -> None:
    """Have a worker kill itself right after a step, each step in turn; then it is started again."""
    step = list(STEPS)[service.injected % len(STEPS)]
    number, times = chance.randrange(WORKERS), 1 if step in ONCE else chance.randint(1, 20)
    service.workers[number].kill()
    service.start(number, step, str(times), entry="tests.fault.kills.killed_at")
    doomed = service.workers[number]
    assert doomed.wait(LIMIT_S) == -signal.SIGKILL, doomed.said[-2000:]
    service.start(number)
