"""A topic that senders write to without keys, the keyed one, routers as processes, and what must hold of both."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from omdml.feedback import Triplet, decode, encode
from streams.partitioners import PARTITIONERS
from tests.processes import Process, wait_for

PARTITIONS = 4
MODELS = 7


class Route:
    """Two topics, events in the first one, and routers to the second.

    An event says where it was sent: its query is a number of its own, its items are source partition and place there.
    """

    def __init__(self, folder, kafka, new_topic, partitioner="murmur2"):
        self.folder, self.kafka, self.partitioner = folder, kafka, partitioner
        self.origin, self.target = new_topic(PARTITIONS), new_topic(PARTITIONS)
        self.sent = Counter()
        self._places = Counter()
        self._draw = random.Random(0)
        (folder / "omdml.toml").write_text(
            f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{self.target}"\n'
            f'partitioner = "{partitioner}"\nsession_timeout_s = 6.0\n'
        )

    def send(self, count, keys=None):
        """Send so many events, and return once all are acknowledged; ``keys`` makes a foreign sender's key of one."""
        producer = KafkaProducer(bootstrap_servers=self.kafka.servers, linger_ms=5)
        sent = []
        for _ in range(count):
            partition = self._draw.randrange(PARTITIONS)
            number, model = sum(self._places.values()), f"shop-{self._draw.randrange(MODELS)}"
            place, self._places[partition] = self._places[partition], self._places[partition] + 1
            value = encode(Triplet(model=model, query=f"q{number}", relevant=f"p{partition}", irrelevant=f"o{place}"))
            sent.append(value)
            producer.send(self.origin, value, key=keys and keys(model), partition=partition)
        producer.flush()
        producer.close()
        self.sent.update(sent)

    def router(self, name="one", *killed_at, member=True):
        """A router; it may kill itself."""
        module = "tests.fault.killed_at" if killed_at else "workers.cli"
        configured = (self.folder / "omdml.toml").read_text()
        file = self.folder / f"{name}.toml"
        file.write_text(configured + f'member = "{name}"\n' if member else configured)
        arguments = (*map(str, killed_at), "route", "--from", self.origin, "--config", file.name)
        return Process(self.folder, *arguments, name=name, module=module)

    def read(self):
        """Every committed record of the keyed topic."""
        consumer = KafkaConsumer(bootstrap_servers=self.kafka.servers, isolation_level="read_committed")
        places = [TopicPartition(self.target, number) for number in range(PARTITIONS)]
        try:
            consumer.assign(places)
            consumer.seek_to_beginning()
            ends, records = consumer.end_offsets(places), []
            while any(consumer.position(place) < ends[place] for place in places):
                for batch in consumer.poll(timeout_ms=200).values():
                    records += batch
            return records
        finally:
            consumer.close()

    def wait(self, *routers, timeout_s=90.0):
        """Return once every event that was sent is in the keyed topic."""

        def all_there():
            return self.sent.keys() <= {record.value for record in self.read()}

        wait_for(all_there, f"{self.sent.total()} events to be routed", timeout_s, routers[0] if routers else None)

    def check(self):
        """Each event that was sent is there once, keyed, where the partitioner says, and in its source's order."""
        records = self.read()
        seen = Counter(record.value for record in records)
        doubled = sum(count - 1 for count in seen.values())
        assert (len(self.sent - seen), doubled) == (0, 0), "lost, doubled"
        last = defaultdict(lambda: -1)
        for record in records:
            event = decode(record.value)
            assert record.key == event.model.encode()
            assert record.partition == PARTITIONERS[self.partitioner](record.key, PARTITIONS)
            place = int(event.irrelevant[1:])
            assert place > last[event.model, event.relevant], "an event overtook another of its source partition"
            last[event.model, event.relevant] = place
