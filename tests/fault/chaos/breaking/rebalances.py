"""A rebalance storm: a third worker that joins the group and leaves it, again and again.

``python -m tests.fault.chaos.breaking.rebalances --config FILE`` is that worker: one process, which is a member for
about a second at a time, and gone before it was given anything, or not.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from random import Random

from prometheus_client import CollectorRegistry

from omdml.errors import SourceError
from omdml.workers.configuration import process
from omdml.workers.configuration.loading import load
from omdml.workers.wiring.worker import build_worker
from tests.fault.chaos.service import GUEST, Service

STORM_S = 25.0
# A guest stays at least and at most so long.
STAY_S = (0.2, 2.0)
LEFT = "event=drained_and_saved"


def storm(service: Service, chance: Random) -> None:
    """The third worker comes and goes; in the end it is killed."""
    guest = service.start_process(service.name(GUEST), __name__)
    before = guest.said.count(LEFT)
    service.wait(lambda: guest.said.count(LEFT) > before or not guest.running, "a third worker to come and go")
    end = time.monotonic() + STORM_S
    service.wait(lambda: time.monotonic() > end or not guest.running, "the storm to end")
    assert guest.running, guest.said[-2000:]
    guest.close()


def main(path: str) -> None:
    """Be a worker again and again."""
    process.configure_log()
    process.one_thread()
    configuration, chance = load(path, {}, {}), Random(0)
    while True:
        # On a busy machine a broker may not answer in time: then this worker comes again, as supervisors have it.
        with suppress(SourceError):
            worker = build_worker(configuration, CollectorRegistry())
            threading.Timer(chance.uniform(*STAY_S), worker.stop).start()
            worker.run()


if __name__ == "__main__":
    main(sys.argv[sys.argv.index("--config") + 1])
