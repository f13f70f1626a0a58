"""``omdml bootstrap`` from a real Kafka log into a real Redis: a worker goes on as if it had learned everything."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
import redis
from msgspec.structs import replace

from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from omdml.workers.configuration.config import KafkaLog
from omdml.workers.wiring.feedback_log import log_extents
from tests.support.deep import deep_after
from tests.support.forks import ForkedProcess
from tests.support.learning.histories import ITEMS, corners, sums_of, taken
from tests.support.processes import wait_for
from tests.support.records import read_topic

CONFIGURATION = """
[log]
kind = "kafka"
servers = "{servers}"
topic = "{topic}"
letters = "{topic}-{name}"
group = "{topic}-{name}"
[store]
url = "{url}"
[catalogues.items]
path = "items"
[guard]
hold_out = 8
[models.shop]
learner = "dca"
coordinates = "features"
init = "coordinates"
"""
# Where a bootstrap is killed. Once "saved", the model has begun.
STEPS = ("saved", "summed", "claimed", "buried", "published")
BEGUN = ("saved", "published")
# A seed decides where the archive and the log end. This does not depend on kills, so each kill has one of three seeds.
# After a kill the same command is run again, so the case without a kill needs only one seed.
CASES = [(0, None)] + [(number % 3, step) for number, step in enumerate(STEPS)]


class Installation:
    """A topic, and two stores with one secret: ``begun`` from an archive, and of a worker ``alone``."""

    def __init__(self, folder, kafka, topic, url, seed) -> None:
        self.folder, self.kafka, self.topic, self.draw = folder, kafka, topic, np.random.default_rng(seed)
        build_catalogue(folder / "items", {"corner": corners()}, ids=[f"i{row}" for row in range(ITEMS)])
        self.stores, self.ids = {}, 0
        self.sink = KafkaSink(KafkaOptions(servers=kafka.servers), topic=topic)
        for number, name in enumerate(("begun", "alone")):
            address = f"{url}/{number}"
            self.stores[name] = open_store(address)
            kafka.create_topic(f"{topic}-{name}")
            (folder / f"{name}.toml").write_text(
                CONFIGURATION.format(servers=kafka.servers, topic=topic, url=address, name=name)
            )
            with redis.Redis.from_url(address) as client:
                # The secret says which events are held out.
                client.set("omdml-secret", "07" * 32)
        assert self.stores["begun"].secret() == self.stores["alone"].secret()

    def tell(self, count: int) -> None:
        """Events of the model, some of which are repeated, refused or unreadable, and some of another model."""
        for _ in range(count):
            query, relevant, irrelevant = (f"i{row}" for row in self.draw.integers(0, ITEMS, 3))
            event = Triplet(model="shop", query=query, relevant=relevant, irrelevant=irrelevant)
            chance, self.ids = self.draw.random(), self.ids + 1
            if chance < 0.05:
                event = replace(event, query="nobody")
            elif chance < 0.1:
                event = replace(event, model="other")
            elif chance < 0.5:
                event = replace(event, id=f"click-{self.draw.integers(0, self.ids)}")
            self.sink.send(b"broken" if chance > 0.97 else encode(event), "shop")
        self.sink.flush()

    def command(self, *arguments: str, store: str = "begun", kill: str | None = None) -> tuple[int, str]:
        """The exit code and the output of a command."""
        module = {"module": "tests.fault.kills.killed_at"} if kill else {}
        name = f"{arguments[0]}-{self.draw.integers(10**9)}"
        before = (kill, "1") if kill else ()
        process = ForkedProcess(self.folder, *before, *arguments, "-c", f"{store}.toml", name=name, **module)
        return process.wait(120), process.said

    def worked(self, store: str):
        """The checkpoint after a worker took the rest of the log, and all letters at the end."""
        process = ForkedProcess(self.folder, "worker", "-c", f"{store}.toml", name=f"worker-{store}")
        (extent,) = log_extents(KafkaLog(servers=self.kafka.servers, topic=self.topic))
        mark = self.stores[store].marks
        wait_for(lambda: mark([extent.partition]).get(extent.partition) == extent.end, "the worker", 120, process)
        assert process.stop() == 0
        letters = [json.loads(record.value) for record in read_topic(self.kafka.servers, f"{self.topic}-{store}")]
        return self.stores[store].peek("shop"), {(letter["offset"], letter["reason"]) for letter in letters}


@pytest.mark.parametrize(("seed", "kill"), deep_after(1, CASES))
def test_a_worker_goes_on_from_an_archive_as_one_that_learned_everything(
    tmp_path, kafka, new_topic, valkey_server, seed, kill
):
    # Given an archive that ends anywhere, and a log that goes on
    shop = Installation(tmp_path, kafka, new_topic(), valkey_server.url, seed)
    shop.tell(int(shop.draw.integers(100, 6_000)))
    assert shop.command("archive", "--to", str(tmp_path / "archive"))[0] == 0
    shop.tell(int(shop.draw.integers(1, 500)))
    # If a model begins from it, although the first attempt may be killed, and a worker goes on
    bootstrap = "bootstrap", "--model", "shop", "--input", str(tmp_path / "archive"), "--processes", "1"
    if kill:
        assert shop.command(*bootstrap, kill=kill)[0] == -signal.SIGKILL
        assert (shop.stores["begun"].peek("shop") is not None) == (kill in BEGUN)
    code, output = shop.command(*bootstrap)
    assert (code, "has a checkpoint already" in output) == ((1, True) if kill in BEGUN else (0, False)), output
    begun, letters = shop.worked("begun")
    # I expect what a worker made of the whole log: the same events taken, and the same sums to the byte
    alone, all_letters = shop.worked("alone")
    assert taken(begun) == taken(alone)
    assert sums_of(begun) == sums_of(alone)
    assert letters == all_letters
    assert shop.stores["begun"].load("shop")[1].version == alone.version
    assert min(alone.progress["tally"]["repeated"], alone.progress["hold_out"]["count"], len(letters)) > 0
    shop.sink.close()
