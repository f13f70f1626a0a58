"""A person's model over real processes: the parent answers before the first click, and kills change nothing after."""

from __future__ import annotations

import httpx
import numpy as np
import pytest

from omdml.learners import Learner
from omdml.streams.files.source import FileSink
from omdml.streams.stores.opening import open_store
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.worlds import catalogue, events, triplets

PERSON = "user-7"


class Place:
    """An installation with a parent, whose worker and node are processes."""

    def __init__(self, folder, url):
        self.folder, self.port, self.url = folder, free_port(), url
        self.items = catalogue(folder / "items", mapped=True)
        self.file, self.sink = folder / "omdml.toml", FileSink(folder / "feedback")
        self.file.write_text(
            f'[log]\nkind = "file"\n[store]\nurl = "{self.url}"\n[catalogues.items]\npath = "items"\n'
            '[models.main]\nrank = 8\n[models."user-*"]\nrank = 8\nparent = "main"\n'
            f'[guard]\non = false\n[node]\nbind = "127.0.0.1:{self.port}"\n'
        )
        self.worker, self.node = (self.process(name) for name in ("worker", "node"))
        wait_for(lambda: self.answer("main"), "an answer of the node", 60, self.node)

    def process(self, name):
        return ForkedProcess(self.folder, name, "--config", str(self.file), name=name)

    def answer(self, model):
        """What the node answers; None if it does not."""
        try:
            asked = {"model": model, "id": "i5", "k": 5}
            answer = httpx.get(f"http://127.0.0.1:{self.port}/search", params=asked, verify=False)
        except httpx.TransportError:
            return None
        return answer.json() if answer.is_success else None

    def send(self, model, count, seed):
        for event in events(count, seed, model):
            self.sink.send(event, model)
        self.sink.flush()

    def learned(self, model, version):
        """Wait until this many comparisons are live."""
        awaited = f"version {version} of {model} to be live"
        wait_for(lambda: (self.answer(model) or {}).get("version") == version, awaited, 60, self.worker)

    def twin(self):
        """The person's model from the parent that its checkpoint names, learned without any worker."""
        checkpoint = open_store(self.url).peek(PERSON)
        spec = Specs(load(str(self.file), {}, {}), {"items": self.items}).of(PERSON)
        twin = spec.fresh()
        twin.begin_from(*Learner.from_bytes(checkpoint.state).parent)
        return twin, checkpoint, spec.catalogue.features

    def close(self):
        self.sink.close()
        for process in (self.worker, self.node):
            process.close()


@pytest.fixture(params=["folder", "Valkey"])
def place(request, tmp_path):
    url = f"dir:{tmp_path}/state" if request.param == "folder" else request.getfixturevalue("valkey_server").url
    place = Place(tmp_path, url)
    yield place
    place.close()


def test_a_parent_answers_until_the_first_click_and_kills_change_nothing(place):
    before = place.answer(PERSON)
    assert (before["version"], before.get("parent")) == (0, None)

    place.send("main", 60, seed=0)
    place.learned("main", 60)
    wait_for(lambda: place.answer(PERSON).get("parent_version") == 60, "the parent's answer", 60, place.node)
    first, main = place.answer(PERSON), place.answer("main")
    assert (first["model"], first["version"], first["parent"]) == (PERSON, 0, "main")
    assert first["items"] == main["items"] != before["items"]

    place.send(PERSON, 5, seed=1)
    place.learned(PERSON, 5)
    assert "parent" not in place.answer(PERSON)
    for turn in range(2, 5):
        place.worker.kill()
        place.send("main", 20, seed=turn)
        place.send(PERSON, 10, seed=turn)
        place.worker = place.process("worker")
    place.learned(PERSON, 35)
    place.learned("main", 120)
    assert place.worker.stop() == 0, place.worker.said[-2000:]

    twin, kept, features = place.twin()
    assert twin.parent[1] == 60
    twin.learn_many(np.concatenate([triplets(5, 1), *(triplets(10, turn) for turn in range(2, 5))]), features)
    assert kept.state == twin.to_bytes()
