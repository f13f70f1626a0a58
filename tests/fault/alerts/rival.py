"""Events for a router, and a process that passes for it again and again."""

from __future__ import annotations

import threading

from kafka import KafkaProducer

from omdml.errors import SourceError
from tests.fault.alerts.service import WatchedService
from tests.fault.alerts.watched import clicks

COMMITTED = 'omdml_route_transactions_total{outcome="committed"}'


class Unkeyed(threading.Thread):
    """Up to fifty events a second to the topic that routers read, until :meth:`end`."""

    def __init__(self, sink):
        super().__init__()
        self.sink, self.enough, self.events = sink, threading.Event(), clicks()
        self.start()

    def run(self):
        while not self.enough.wait(0.02):
            try:
                self.sink.send(next(self.events), key="")
            except SourceError:
                continue

    def end(self):
        self.enough.set()
        self.join()


class Rival(threading.Thread):
    """Begins under the name of the service's router, whenever that has committed something, until :meth:`end`.

    A router that never gets to commit anything stops after some tries, before the alert fires.
    """

    def __init__(self, service: WatchedService):
        super().__init__()
        self.service, self.enough = service, threading.Event()
        self.start()

    def run(self):
        name = f"omdml.route.{self.service.origin}.route"
        before = -1.0
        while not self.enough.wait(0.5):
            committed = sum(self.service.prometheus.ask(COMMITTED))
            if committed > before:
                before = committed
                producer = KafkaProducer(
                    bootstrap_servers=self.service.kafka.servers, transactional_id=name, acks="all"
                )
                producer.init_transactions()
                producer.close(timeout=1.0)

    def end(self):
        self.enough.set()
        self.join()
