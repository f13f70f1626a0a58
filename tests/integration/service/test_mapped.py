"""A model on mapped coordinates over real processes: built, fed, learned, published, searched, grown, looked at."""

from __future__ import annotations

import json

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from omdml import LOMDML
from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.stores.opening import open_store
from omdml.workers.cli import main
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.worlds import ITEMS, events, items, triplets


class Place:
    """An installation whose catalogue, worker and node are what commands made; ``shop`` is on mapped coordinates."""

    def __init__(self, folder, log, store, target):
        self.folder, self.target, self.port = folder, target, free_port()
        features = items()[0]
        ids = np.array([f"i{row}" for row in range(ITEMS)])
        np.savez(folder / "items.npz", ids=ids, **features)
        self.file = folder / "omdml.toml"
        self.file.write_text(
            f'[log]\n{log}\n[store]\nurl = "{store}"\n[catalogues.items]\npath = "{target}"\n'
            '[models.shop]\nlearner = "lomdml"\nrank = 3\ncoordinates = "mapped"\n'
            '[models.plain]\nlearner = "lomdml"\nrank = 3\n'
            f'[guard]\non = false\n[node]\nbind = "127.0.0.1:{self.port}"\n'
        )
        self.run("catalogue", "build", target, str(folder / "items.npz"))
        self.store = open_store(store)
        self.worker, self.node = (
            ForkedProcess(folder, name, "--config", str(self.file), name=name) for name in ("worker", "node")
        )
        wait_for(lambda: self.asked("POST", "/search", id="i1"), "an answer of the node", 60, self.node)

    def run(self, *arguments):
        """Run a command in this process; answers what it printed."""
        done = CliRunner().invoke(main, list(arguments))
        assert done.exit_code == 0, done.output
        return done.output

    def feed(self, *lines):
        """Send events by ``omdml feed``, which must take all of them."""
        path = self.folder / "clicks.jsonl"
        path.write_bytes(b"\n".join(lines))
        assert f": sent {len(lines)} triplet" in self.run("feed", "--config", str(self.file), str(path))

    def asked(self, method, path, **body):
        """What the node answers; None if it does not."""
        try:
            answer = httpx.request(
                method, f"http://127.0.0.1:{self.port}{path}", json={"model": "shop", **body}, verify=False
            )
        except httpx.TransportError:
            return None
        return answer.json() if answer.is_success else None

    def nearest(self, **query):
        """Version, and ids and distances of the five nearest."""
        answer = self.asked("POST", "/search", k=5, **query)
        return answer["version"], {item["id"]: item["distance"] for item in answer["items"]}

    def learned(self, version):
        """Wait until this many comparisons are live."""
        wait_for(lambda: self.nearest(id="i1")[0] == version, f"version {version} to be live", 60, self.worker)

    def expected(self, row, features, **others):
        """The five nearest of an item under the live metric, by brute force on these coordinates."""
        embedding = self.store.load("shop")[1].metric.embed(features).astype(float)
        distances = ((embedding - embedding[row]) ** 2).sum(axis=1)
        ids = open_catalogue(self.target).ids
        order = [other for other in np.argsort(distances, kind="stable") if other != row][:5]
        return {ids[other]: pytest.approx(distances[other], rel=1e-3) for other in order}

    def close(self):
        for process in (self.worker, self.node):
            process.close()


@pytest.fixture(params=["file log and folders", "Kafka and Valkey"])
def place(request, tmp_path):
    if request.param == "file log and folders":
        log = f'kind = "file"\npath = "{tmp_path}/feedback"\nletters = "{tmp_path}/letters"'
        place = Place(tmp_path, log, f"dir:{tmp_path}/state", f"{tmp_path}/items")
    else:
        servers, url = request.getfixturevalue("kafka").servers, request.getfixturevalue("valkey_server").url
        topic = request.getfixturevalue("new_topic")()
        log = f'kind = "kafka"\nservers = "{servers}"\ntopic = "{topic}"'
        place = Place(tmp_path, log, f"{url}?prefix={topic}", f"{url}#{topic}")
    yield place
    place.close()


def test_a_model_on_mapped_coordinates_lives_as_one_on_features_does(place):
    new = items(1)[0]
    raw = {name: x[3].tolist() for name, x in new.items()}

    # what was clicked is learned on the coordinates that the build wrote
    place.feed(*events(60), *events(20, model="plain"))
    place.learned(60)
    mapped = open_catalogue(place.target).in_coordinates("mapped")
    ((name, matrix),) = mapped.features.items()
    twin = LOMDML(dims=dict(mapped.dims), rank=3)
    twin.start(mapped.features)
    twin.learn_many(triplets(60), mapped.features)
    assert place.nearest(id="i7")[1] == place.expected(7, mapped.features)

    # a raw query and an event with an item of its own bring the ordinary modalities
    own = {name: x[7].tolist() for name, x in items()[0].items()}
    assert place.nearest(features=own)[1].keys() == {"i7", *list(place.expected(7, mapped.features))[:4]}
    fields = {"type": "triplet", "query": "i1", "relevant": "i2", "irrelevant": "brought", "features": {"brought": raw}}
    assert place.asked("POST", "/feedback", **fields)["accepted"] == 1
    place.learned(61)
    table = np.concatenate([matrix[1:3], mapped.scale({n: x[3:4] for n, x in new.items()})[name]])
    twin.learn_many([(0, 1, 2)], {name: table})

    # an item that is added is mapped, found, and learned from
    np.savez(place.folder / "new.npz", ids=np.array(["added"]), **{name: x[3:4] for name, x in new.items()})
    place.run("catalogue", "build", place.target, str(place.folder / "new.npz"), "--add")
    wait_for(lambda: place.asked("POST", "/search", id="added"), "the added item", 60, place.node)
    grown = open_catalogue(place.target).in_coordinates("mapped")
    assert place.nearest(id="added")[1] == place.expected(ITEMS, grown.features)
    assert next(iter(place.nearest(features=raw)[1])) == "added"
    place.feed(json.dumps({**fields, "model": "shop", "irrelevant": "added", "features": None}).encode())
    place.learned(62)
    twin.learn_many([(1, 2, ITEMS)], grown.features)

    # what operators run
    configured = ("--config", str(place.file))
    assert f"{name} 119" in place.run("inspect", *configured, "shop")
    assert "nearest items are the same" in place.run("diff", *configured, "shop", "0")
    assert "62" in place.run("replay", *configured, "--model", "shop")
    assert "no: " not in place.run("history", *configured, "shop")
    assert place.worker.stop() == 0
    assert place.store.peek("shop").state == twin.to_bytes()
    assert "shop" in place.run("doctor", *configured)
