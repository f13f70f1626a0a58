"""A topic without keys, a keyed topic, routers as processes, and checks of both topics."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from omdml.feedback import Triplet, decode, encode
from omdml.streams.partitioners import PARTITIONERS
from tests.support.forks import ForkedProcess
from tests.support.processes import wait_for

PARTITIONS = 4
MODELS = 7


def read_committed(kafka, topic, partitions=1):
    """Every committed record of a topic."""
    consumer = KafkaConsumer(bootstrap_servers=kafka.servers, isolation_level="read_committed")
    places = [TopicPartition(topic, number) for number in range(partitions)]
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


class Route:
    """Two topics, events in the first one, and routers to the second.

    ``partition_of`` is how a foreign sender chooses a partition by key; without it, at random.

    Each event names its origin: its query is the event's own number, its items are the partition that it was sent to
    and its place there.
    """

    def __init__(self, folder, kafka, new_topic, partitioner="murmur2", partition_of=None):
        self.folder, self.kafka, self.partitioner = folder, kafka, partitioner
        self.origin, self.target = new_topic(PARTITIONS), new_topic(PARTITIONS)
        self.sent = Counter()
        self._places = Counter()
        self._started = 0
        self._draw = random.Random(0)
        self._partition_of = partition_of
        self._producer = KafkaProducer(bootstrap_servers=kafka.servers, linger_ms=5, enable_idempotence=True)
        (folder / "omdml.toml").write_text(
            f'[log]\nkind = "kafka"\nservers = "{kafka.servers}"\ntopic = "{self.target}"\n'
            f'partitioner = "{partitioner}"\nsession_timeout_s = 6.0\nstart_timeout_s = 60.0\n'
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._producer.close(timeout=1.0)

    def send(self, count, keys=None):
        """Send ``count`` events, and wait until all are acknowledged; ``keys`` makes a key from the model's name."""
        sent = {}
        for _ in range(count):
            number, model = sum(self._places.values()), f"shop-{self._draw.randrange(MODELS)}"
            choose = self._partition_of
            partition = choose(model.encode()) if choose else self._draw.randrange(PARTITIONS)
            place, self._places[partition] = self._places[partition], self._places[partition] + 1
            value = encode(Triplet(model=model, query=f"q{number}", relevant=f"p{partition}", irrelevant=f"o{place}"))
            sent[value] = self._producer.send(self.origin, value, key=keys and keys(model), partition=partition)
        self._producer.flush()
        for acknowledged in sent.values():
            acknowledged.get(120)
        self.sent.update(list(sent))

    @property
    def group(self):
        """The name of the group of the routers."""
        return f"omdml.route.{self.origin}"

    def forget(self):
        """Have the cluster forget the group, as it does some days after the last router left it."""
        admin = KafkaAdminClient(bootstrap_servers=self.kafka.servers)
        admin.delete_groups([self.group])
        admin.close()

    def router(self, name="one", *killed_at, member=True, options=()):
        """Start a router. With ``killed_at`` it kills or pauses itself at that step."""
        module = "tests.fault.kills.killed_at" if killed_at else "omdml.workers.cli"
        configured = (self.folder / "omdml.toml").read_text()
        file = self.folder / f"{name}.toml"
        file.write_text(configured + f'member = "{name}"\n' if member else configured)
        arguments = (*map(str, killed_at), "route", "--from", self.origin, "--config", file.name, *options)
        self._started += 1
        return ForkedProcess(self.folder, *arguments, name=f"{name}-{self._started}", module=module)

    def stop(self, *routers):
        """End routers as soon as they handle signals; returns their exit codes."""
        for router in routers:
            wait_for(lambda router=router: "route_started" in router.said, "a router to have started", 60, router)
        return [router.stop() for router in routers]

    def read(self):
        """Every committed record of the keyed topic."""
        return read_committed(self.kafka, self.target, PARTITIONS)

    def wait(self, *routers, timeout_s=90.0):
        """Wait until every event that was sent is in the keyed topic."""

        def all_there():
            return self.sent.keys() <= {record.value for record in self.read()}

        wait_for(all_there, f"{self.sent.total()} events to be routed", timeout_s, routers[0] if routers else None)

    def check(self):
        """Check that each sent event is there once, with its key, on the right partition, and in order."""
        assert self.faults() == (0, 0, 0), "lost, doubled, out of place or order"

    def faults(self):
        """How many of the events that were sent are lost, doubled, and keyed, placed or ordered wrongly."""
        records = self.read()
        seen = Counter(record.value for record in records)
        last, wrong = defaultdict(lambda: -1), 0
        for record in records:
            event = decode(record.value)
            model, place = event.model.encode(), int(event.irrelevant[1:])
            home = PARTITIONERS[self.partitioner](model, PARTITIONS)
            wrong += record.key != model or record.partition != home or place <= last[event.model, event.relevant]
            last[event.model, event.relevant] = place
        return (self.sent - seen).total(), (seen - self.sent).total(), wrong
