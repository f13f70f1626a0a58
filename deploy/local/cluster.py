"""A real Kafka cluster of three brokers and a controller, on loopback."""

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

from deploy.local import ports
from deploy.local.errors import ServiceError
from deploy.local.kafka import KafkaServer
from deploy.local.started import Started

BROKERS = (1, 2, 3)
CONTROLLER = 100
WAIT_LIMIT_S = 120.0
LOOK_EVERY_S = 0.1
# The kind of election, as Kafka numbers them.
UNCLEAN = 1


class _Node(KafkaServer):
    """One node of a cluster: a broker, or the controller. The controller is alone, so any broker can be killed."""

    heap_mb = 256

    def __init__(self, number: int, cluster: str, controller_port: int) -> None:
        super().__init__()
        self.number = number
        self.cluster = cluster
        self.controller_port = controller_port
        if number == CONTROLLER:
            self.port = controller_port

    def _cluster_id(self) -> str:
        return self.cluster

    def _defaults(self) -> dict[str, str]:
        lines = super()._defaults()
        lines["node.id"] = str(self.number)
        lines["controller.quorum.voters"] = f"{CONTROLLER}@{ports.HOST}:{self.controller_port}"
        for kind in ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic"):
            lines[f"{kind}.replication.factor"] = str(len(BROKERS))
        lines |= {
            # A killed broker counts as out of sync after this time.
            "replica.lag.time.max.ms": "3000",
            # Leaders stay where a test has moved them.
            "leader.imbalance.check.interval.seconds": "3600",
        }
        if self.number == CONTROLLER:
            lines |= {"process.roles": "controller", "listeners": f"CONTROLLER://{self.address}"}
            del lines["advertised.listeners"], lines["inter.broker.listener.name"]
        else:
            lines |= {"process.roles": "broker", "listeners": f"{self.protocol}://{self.address}"}
        return lines


class KafkaCluster(Started):
    """Three brokers with three copies of everything, and a controller: four processes, each with a small heap.

    As a context manager it is started on entry and closed on exit.
    """

    def __init__(self) -> None:
        cluster, port = uuid.uuid4().hex[:22], ports.free_port()
        self._controller = _Node(CONTROLLER, cluster, port)
        self.brokers = {number: _Node(number, cluster, port) for number in BROKERS}

    @property
    def servers(self) -> str:
        """The addresses of all brokers, which clients call ``bootstrap_servers``."""
        return ",".join(broker.address for broker in self.brokers.values())

    @property
    def running(self) -> bool:
        """Whether the controller and all brokers are running."""
        return self._controller.running and all(broker.running for broker in self.brokers.values())

    @property
    def address(self) -> str:
        """The addresses of all brokers, as ``servers``."""
        return self.servers

    # Start, stop, and faults

    def start(self) -> Self:
        """Start every node that is not running, and wait until all brokers are in the cluster."""
        if self.running:
            return self
        with ThreadPoolExecutor(len(BROKERS) + 1) as pool:
            list(pool.map(KafkaServer.start, (self._controller, *self.brokers.values())))
        self._wait(lambda: self._alive() == set(BROKERS), "all brokers to join the cluster")
        return self

    def stop(self) -> None:
        """End every node with SIGTERM. Their data stay."""
        for node in (*self.brokers.values(), self._controller):
            node.stop()

    def kill(self, broker: int) -> None:
        """End one broker with SIGKILL, as a crash would."""
        self.brokers[broker].kill()

    def restart(self, *brokers: int) -> None:
        """Start brokers that ended, and wait until they are in the cluster."""
        with ThreadPoolExecutor(len(BROKERS)) as pool:
            list(pool.map(lambda number: self.brokers[number].start(), brokers))
        self._wait(lambda: set(brokers) <= self._alive(), f"brokers {brokers} to join the cluster")

    def resume(self) -> None:
        """Let every paused node go on."""
        for node in (self._controller, *self.brokers.values()):
            node.resume()

    def close(self) -> None:
        """End every node, and remove its folder."""
        for node in (*self.brokers.values(), self._controller):
            node.close()

    # Topics and their leaders

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic with three copies, and wait until every partition has a leader and all copies."""
        wanted = {"num_partitions": partitions, "replication_factor": len(BROKERS), "configs": dict(configs or {})}
        with self.admin() as admin:
            admin.create_topics({name: wanted}, wait_for_metadata=True)
        for number in range(partitions):
            self.wait_in_sync(name, number, set(BROKERS))

    def configure(self, topic: str, configs: Mapping[str, str]) -> None:
        """Change settings of a topic, by their names."""
        from kafka.admin import ConfigResource, ConfigResourceType

        with self.admin() as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=dict(configs))])

    def leader(self, topic: str, partition: int = 0) -> int:
        """The number of the broker that leads a partition; -1 if there is none."""
        return int(self._described(topic, partition)["leader_id"])

    def wait_in_sync(self, topic: str, partition: int, brokers: set[int]) -> None:
        """Wait until exactly these brokers have complete copies, and one of them leads."""

        def in_sync() -> bool:
            described = self._described(topic, partition)
            return set(described["isr_nodes"]) == brokers and described["leader_id"] in brokers

        self._wait(in_sync, f"partition {partition} of {topic} to be in sync at {brokers}")

    def move_leader(self, topic: str, partition: int = 0) -> int:
        """Have another broker lead a partition; returns its number. It has a complete copy, so nothing is lost."""
        before = self.leader(topic, partition)
        order = [*(broker for broker in BROKERS if broker != before), before]
        from kafka import TopicPartition

        with self.admin() as admin:
            admin.alter_partition_reassignments({TopicPartition(topic, partition): order})
            self._wait(
                lambda: self._described(topic, partition)["replica_nodes"] == order, f"{topic} to have its copies moved"
            )

            def leads() -> bool:
                # 0 means the first of the copies. Kafka refuses while that copy lags, as it may on a busy machine.
                admin.elect_leaders(0, {topic: [partition]})
                return self.leader(topic, partition) == order[0]

            self._wait(leads, f"broker {order[0]} to lead {topic}")
        return order[0]

    def elect_unclean(self, topic: str) -> int:
        """Let a broker lead partition 0 whose copy may lack acknowledged records, because no other is left.

        Returns the number of that broker.
        """
        with self.admin() as admin:
            admin.elect_leaders(UNCLEAN, {topic: [0]}, raise_errors=False)
        self._wait(lambda: self.leader(topic) in BROKERS, f"{topic} to have a leader")
        return self.leader(topic)

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """An administration client, closed at the end."""
        # Imported late, because fetching and serving need no client.
        from kafka.admin import KafkaAdminClient

        running = [broker.address for broker in self.brokers.values() if broker.running]
        admin = KafkaAdminClient(bootstrap_servers=running)
        try:
            yield admin
        finally:
            admin.close()

    def _described(self, topic: str, partition: int) -> dict[str, Any]:
        with self.admin() as admin:
            (described,) = admin.describe_topics([topic])
        return next(entry for entry in described["partitions"] if entry["partition_index"] == partition)

    def _alive(self) -> set[int]:
        with self.admin() as admin:
            return {broker["broker_id"] for broker in admin.describe_cluster()["brokers"]}

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        from kafka.errors import KafkaError

        deadline = time.monotonic() + WAIT_LIMIT_S
        why = ""
        while True:
            try:
                if condition():
                    return
            except KafkaError as error:
                why = f" ({type(error).__name__})"
            if time.monotonic() > deadline:
                problem = f"waited {WAIT_LIMIT_S:.0f} s for {what}{why}"
                raise ServiceError(problem, where=f"Kafka cluster {self.servers}", do="see its brokers' logs")
            time.sleep(LOOK_EVERY_S)
