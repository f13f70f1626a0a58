"""Processes that get too little processor, and clicks that keep them busy."""

from __future__ import annotations

import itertools
import threading
import time

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from tests.fault.alerts.service import Watched
from tests.fault.watched import clicks
from tests.support.processes import Process
from tests.support.prometheus import FASTER

HOUR_S = 3600.0  # in the time of the rules
AT_ONCE, A_SECOND, EVERY_S = 20_000, 1000, 0.05
# A pause is shorter than Prometheus waits for an answer, so that what starves is not down.
PAUSED_S, USES_S, LOOK_S = 0.4, 0.02, 0.005


class Stutters(threading.Thread):
    """A process on a machine that gives its processor away again and again, until :meth:`end`."""

    def __init__(self, process: Process, paused_s: float, runs_s: float) -> None:
        super().__init__()
        self.process, self.paused_s, self.runs_s, self.enough = process, paused_s, runs_s, threading.Event()
        self.start()

    def run(self) -> None:
        while self.goes_on():
            self.process.pause()
            # How long the pause lasts is the fault.
            time.sleep(self.paused_s)
            self.process.resume()

    def goes_on(self) -> bool:
        """Let the process run for a while; False if that was enough."""
        return not self.enough.wait(self.runs_s)

    def end(self) -> None:
        self.enough.set()
        self.join()


class Starves(Stutters):
    """A process under a limit of processor time: as soon as it has used 20 ms of a core, it is paused for 0.4 s.

    So it gets a twentieth of a core at most, however much else runs on the machine.
    """

    def __init__(self, process: Process) -> None:
        super().__init__(process, PAUSED_S, USES_S)

    def goes_on(self) -> bool:
        limit_s = used_s(self.process) + self.runs_s
        while used_s(self.process) < limit_s:
            if self.enough.wait(LOOK_S):
                return False
        return True


def used_s(process: Process) -> float:
    """The processor time that a process has used, in seconds."""
    # So clock_getcpuclockid(3) makes the number of another process's clock; the standard library lacks it.
    return time.clock_gettime(~process.pid << 3 | 2)


class LateClicks(threading.Thread):
    """Clicks that an app kept for an hour in the time of the rules: many at once, then a thousand a second until
    :meth:`end`. A worker that gets a twentieth of a core learns fewer.

    Meanwhile the topic takes the senders' times, as one that another tool made does.
    """

    def __init__(self, service: Watched) -> None:
        super().__init__()
        self.service, self.enough = service, threading.Event()
        self.take_times("CreateTime")
        self.made_at_ms = int((time.time() - HOUR_S / FASTER) * 1000)
        self.start()

    def run(self) -> None:
        producer, events = KafkaProducer(bootstrap_servers=self.service.kafka.servers), clicks()
        count = AT_ONCE
        while not self.enough.is_set():
            for event in itertools.islice(events, count):
                producer.send(self.service.topic, event, key=b"shop", timestamp_ms=self.made_at_ms)
            count = round(A_SECOND * EVERY_S)
            self.enough.wait(EVERY_S)
        producer.close(timeout=60)

    def take_times(self, kind: str) -> None:
        """Set whose time an event of the topic has."""
        settings = {"message.timestamp.type": kind}
        admin = KafkaAdminClient(bootstrap_servers=self.service.kafka.servers)
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self.service.topic, configs=settings)])
        admin.close()

    def end(self) -> None:
        self.enough.set()
        self.join()
        self.take_times("LogAppendTime")
