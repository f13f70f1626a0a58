"""Processes that get too little processor, and clicks that keep them busy."""

from __future__ import annotations

import itertools
import threading
import time

from kafka import KafkaProducer

from omdml.feedback import Triplet, encode
from tests.support.processes import Process
from tests.support.worlds import items, triplets

# Pauses are much shorter than the time that Prometheus waits for an answer. On a busy machine an answer may take
# several of them, and a target that does not answer counts as down.
PAUSED_S, USES_S, LOOK_S = 0.2, 0.02, 0.005
# Clicks a second that a starving worker learns at most. A core learns 10,000 of them a second, 30,000 if it is three
# times as fast as what this was measured on, and the worker gets an eleventh of it.
LEARNED = 2700


class StutteringProcess(threading.Thread):
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


class StarvedProcess(StutteringProcess):
    """A process under a limit of processor time: as soon as it has used ``uses_s`` of a core, it is paused.

    So it gets an eleventh of a core at most by default, however much else runs on the machine.
    """

    def __init__(self, process: Process, paused_s: float = PAUSED_S, uses_s: float = USES_S) -> None:
        super().__init__(process, paused_s, uses_s)

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


def flood(servers: str, topic: str, seconds: float) -> None:
    """Send enough clicks at once to keep a starving worker busy for ``seconds``, even on a faster machine.

    Each brings the vectors of one of its items, because other clicks are learned faster than a producer sends them. No
    more are sent, because the worker still has to learn the rest while other tests run.
    """
    features, _ = items()
    events = []
    for query, relevant, irrelevant in triplets(2_000).tolist():
        vectors = {"new": {name: column[relevant].tolist() for name, column in features.items()}}
        click = Triplet(model="shop", query=f"i{query}", relevant="new", irrelevant=f"i{irrelevant}", features=vectors)
        events.append(encode(click))
    producer = KafkaProducer(bootstrap_servers=servers)
    for event in itertools.islice(itertools.cycle(events), int(seconds * LEARNED)):
        producer.send(topic, event, key=b"shop")
    producer.close(timeout=60)
