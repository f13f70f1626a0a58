"""A worker that is killed between any two steps of the protocol loses nothing and doubles nothing."""

from __future__ import annotations

import signal

import pytest

from omdml import LOMDML
from omdml.feedback import Triplet, encode
from streams.files.source import FileSink
from streams.kafka.options import KafkaOptions
from streams.kafka.sink import KafkaSink
from streams.letters import read_letters
from streams.stores.opening import open_store
from tests.fault.killed_at import STEPS
from tests.processes import Process, wait_for
from tests.worlds import catalogue, events, learned_of
from workers import config, wiring
from workers.replay import read_whole

MODELS = {"shop": 0, "user-1": 7}  # and the seeds of their events
STORED = ("publish", "save", "mark")  # of which real servers are asked too: what they keep is the same for the others
PARTS = (slice(0, 60), slice(60, 75), slice(75, 100))


class Place:
    """An installation whose events come in three parts, a broken one with each."""

    def __init__(self, folder, log, url, sink):
        self.folder, self.items, self.sink, self.store = folder, catalogue(folder / "items"), sink, open_store(url)
        self.file = folder / "omdml.toml"
        self.file.write_text(
            f'[log]\n{log}\n[store]\nurl = "{url}"\n[catalogues.items]\npath = "{folder}/items"\n'
            '[models.shop]\nrank = 3\n[models."user-*"]\nrank = 3\n[guard]\ntolerance = 2.0\n'
        )
        self.said = {model: list(events(100, seed, model)) for model, seed in MODELS.items()}

    def send(self, part):
        """A line that is no event, an event of an item that there is not, and one part of every model's events."""
        self.sink.send(b"broken", key="shop")
        self.sink.send(encode(Triplet(model="shop", query="i0", relevant="nobody", irrelevant="i3")), key="shop")
        for pair in zip(*(said[part] for said in self.said.values()), strict=True):
            for model, event in zip(MODELS, pair, strict=True):
                self.sink.send(event, key=model)
        self.sink.flush()

    def worker(self, *killed_at):
        """A worker, which may kill itself."""
        command = ("worker", "--config", str(self.file))
        module, name = ("tests.fault.killed_at", "killed") if killed_at else ("workers.cli", "worker")
        return Process(self.folder, *map(str, killed_at), *command, name=name, module=module)

    def letters(self):
        """Offsets of the refused events, each once."""
        log = wiring.open_letters_to_read(config.load(str(self.file), {}, {}).log)
        return [letter.offset for letter in read_letters(record for records in read_whole(log) for record in records)]


@pytest.fixture
def place(request, tmp_path):
    if request.param == "file log and folder":
        log = f'kind = "file"\npath = "{tmp_path}/feedback"\nletters = "{tmp_path}/letters"'
        made = Place(tmp_path, log, f"dir:{tmp_path}/state", FileSink(tmp_path / "feedback"))
    else:
        servers = request.getfixturevalue("kafka").servers
        topic, url = request.getfixturevalue("new_topic")(), request.getfixturevalue("valkey_server").url
        log = f'kind = "kafka"\nservers = "{servers}"\ntopic = "{topic}"\nmember = "one"\nsession_timeout_s = 6'
        made = Place(tmp_path, log, f"{url}?prefix={topic}", KafkaSink(KafkaOptions(servers=servers), topic=topic))
    yield made
    made.sink.close()


@pytest.mark.parametrize(
    ("place", "step"),
    [("file log and folder", step) for step in STEPS] + [("Kafka and Valkey", step) for step in STORED],
    indirect=["place"],
)
def test_killed_right_after_a_step_and_again_it_ends_with_the_bytes_of_a_run_never_killed(place, step):
    # Given events, more of them each time, and workers that die right after this step
    place.send(PARTS[0])
    for part in PARTS[1:]:
        worker = place.worker(step, 1)
        place.send(part)
        assert worker.wait(60) == -signal.SIGKILL, worker.said[-2000:]
    # If a worker is left alone then, I expect every model learned once from each event, and one letter a refused one.
    worker = place.worker()
    for model in MODELS:
        count = len(learned_of(place.file, place.store.secret(), model))
        wait_for(
            lambda model=model, count=count: (kept := place.store.peek(model)) and kept.version == count,
            model,
            60,
            worker,
        )
    wait_for(lambda: "partition_assigned" in worker.said, "the worker to be at work", 60, worker)
    assert worker.stop() == 0
    for model in MODELS:
        twin = LOMDML(dims=dict(place.items.dims), rank=3)
        twin.start(place.items.features)
        twin.learn_many(learned_of(place.file, place.store.secret(), model), place.items.features)
        assert place.store.peek(model).state == twin.to_bytes()
        versions = [line["version"] for line in place.store.history(model) if line["what"] == "published"]
        assert versions == sorted(versions)
    assert len(place.letters()) == 2 * len(PARTS)
