"""What operators do to models and dead letters, while a worker and a node go on."""

from __future__ import annotations

import json

import httpx
import numpy as np
import pytest
from click.testing import CliRunner

from omdml import LOMDML
from omdml.streams.catalogues.building.build import add_items
from omdml.streams.files.source import FileSink
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.stores.opening import open_store
from omdml.workers.cli import main
from omdml.workers.wiring import dead_letters
from omdml.workers.wiring.dead_letters import open_sender
from tests.fault.asking import version_served
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.worlds import catalogue, events, items, triplets


class Place:
    """An installation with a worker and a node as processes."""

    def __init__(self, folder, log, url, sink):
        self.items, self.port, self.sink, self.url = catalogue(folder / "items"), free_port(), sink, url
        self.file = folder / "omdml.toml"
        self.file.write_text(
            f'[log]\n{log}\n[store]\nurl = "{url}"\n[catalogues.items]\npath = "{folder}/items"\n'
            '[models.shop]\nlearner = "lomdml"\nrank = 3\n'
            '[models."user-*"]\nlearner = "lomdml"\nrank = 3\n[guard]\non = false\n'
            f'[node]\nbind = "127.0.0.1:{self.port}"\n'
        )
        self.store = open_store(url)
        self.worker, self.node = (
            ForkedProcess(folder, name, "--config", str(self.file), name=name) for name in ("worker", "node")
        )
        wait_for(lambda: self.served() is not None, "an answer of the node", 60, self.node)

    def served(self, model="shop"):
        """The version the node answers with."""
        return version_served(self.port, model)

    def send(self, *lines, model="shop"):
        for line in lines:
            self.sink.send(line, key=model)
        self.sink.flush()

    def omdml(self, *arguments):
        """Run a command in this process; answers what it printed."""
        command, *options = arguments
        group = [command] if command not in ("models", "letters") else [command, options.pop(0)]
        printed = CliRunner().invoke(main, [*group, "--config", str(self.file), *options])
        assert printed.exit_code == 0, printed.output
        return printed.output

    def close(self):
        for process in (self.worker, self.node):
            process.close()
        self.sink.close()


@pytest.fixture(params=["file log and folder", "Kafka and Valkey"])
def place(request, tmp_path):
    if request.param == "file log and folder":
        log = f'kind = "file"\npath = "{tmp_path}/feedback"\nletters = "{tmp_path}/letters"'
        place = Place(tmp_path, log, f"dir:{tmp_path}/state", FileSink(tmp_path / "feedback"))
    else:
        servers = request.getfixturevalue("kafka").servers
        topic, url = request.getfixturevalue("new_topic")(), request.getfixturevalue("valkey_server").url
        log = f'kind = "kafka"\nservers = "{servers}"\ntopic = "{topic}"'
        place = Place(tmp_path, log, f"{url}?prefix={topic}", KafkaSink(KafkaOptions(servers=servers), topic=topic))
    yield place
    place.close()


def learned(place, rows):
    """The bytes of a learner that learned these rows without any worker."""
    twin = LOMDML(dims=dict(place.items.dims), rank=3)
    twin.start(place.items.features)
    twin.learn_many(rows, place.items.features)
    return twin.to_bytes()


def test_a_user_is_forgotten_while_the_worker_stands_and_nodes_go_on(place, tmp_path):
    def of(user, line):
        return json.dumps({**json.loads(line), "user": user}).encode()

    rows = triplets(60)
    place.send(*(of("ann" if n % 3 else "ben", line) for n, line in enumerate(events(60))))
    wait_for(lambda: place.served() == 60, "version 60 to be live", 60, place.node)
    refused = CliRunner().invoke(main, ["forget", "shop", "--user", "ben", "--yes", "-c", str(place.file)])
    assert refused.exit_code == 2, refused.output
    assert "stop the worker" in refused.output
    place.worker.stop()
    printed = " ".join(place.omdml("forget", "shop", "--user", "ben", "--yes").split())
    assert "Left out: 20 events" in printed
    wait_for(lambda: place.served() == 40, "version 40 to be live", 60, place.node)
    remaining = [row for n, row in enumerate(rows) if n % 3]
    assert place.store.peek("shop").state == learned(place, np.array(remaining))
    place.worker = ForkedProcess(tmp_path, "worker", "--config", str(place.file), name="again")
    place.send(*(of("ben", line) for line in events(10, seed=1)))
    wait_for(lambda: place.served() == 50, "version 50 to be live", 60, place.worker)
    place.worker.stop()
    assert place.store.peek("shop").state == learned(place, np.concatenate([remaining, triplets(10, seed=1)]))
    audit = CliRunner().invoke(main, ["doctor", "--audit", "-c", str(place.file)])
    assert "learned twice" not in audit.output, audit.output
    assert "would be lost" not in audit.output, audit.output


def test_a_model_that_is_reset_under_a_living_worker_learns_what_comes_then(place):
    place.send(*events(40))
    wait_for(lambda: place.served() == 40, "40 events to be live", 30, place.worker)
    wait_for(lambda: (saved := place.store.peek("shop")) and saved.version == 40, "a checkpoint", 30, place.worker)
    assert "version 0" in place.omdml("models", "reset", "shop", "--yes")
    wait_for(lambda: place.served() == 0, "version 0 to be live", 30, place.node)
    place.send(*events(10, seed=3))
    wait_for(lambda: place.served() == 10, "10 events to be live", 30, place.worker)
    assert place.worker.stop() == 0
    assert place.store.peek("shop").state == learned(place, triplets(10, seed=3))
    assert [line["what"] for line in place.store.history("shop")][-2:] == ["reset", "published"]


def test_a_model_deleted_under_a_living_worker_begins_again(place):
    place.send(*events(20, model="user-1"), model="user-1")
    wait_for(lambda: place.served("user-1") == 20, "20 events to be live", 30, place.worker)
    wait_for(lambda: (saved := place.store.peek("user-1")) and saved.version == 20, "a checkpoint", 30, place.worker)
    place.send(*events(5))
    wait_for(lambda: place.served() == 5, "the other model to be live", 30, place.worker)
    assert "deleted" in place.omdml("models", "delete", "user-1", "--yes")
    # If a model of a pattern is deleted, the node answers as before its first click: from version 0.
    wait_for(lambda: place.served("user-1") == 0, "the node to let go", 30, place.node)
    place.send(*events(7, seed=5, model="user-1"), model="user-1")
    wait_for(lambda: place.served("user-1") == 7, "it to begin again", 30, place.worker)
    assert place.worker.stop() == 0
    assert place.store.peek("user-1").state == learned(place, triplets(7, seed=5))
    assert place.store.peek("shop").state == learned(place, triplets(5))


def test_a_model_begins_as_a_copy_of_another_and_goes_on_with_its_own_events(place):
    place.send(*events(20, model="user-1"), model="user-1")
    wait_for(lambda: (saved := place.store.peek("user-1")) and saved.version == 20, "a checkpoint", 30, place.worker)
    assert "begun as a copy of user-1, version 20 is live" in place.omdml("models", "copy", "user-1", "user-2")
    wait_for(lambda: place.served("user-2") == 20, "the copy to be live", 30, place.node)
    place.send(*events(5, seed=5, model="user-2"), model="user-2")
    wait_for(lambda: place.served("user-2") == 25, "it to learn on", 30, place.worker)
    assert place.worker.stop() == 0
    assert place.store.peek("user-2").state == learned(place, np.concatenate([triplets(20), triplets(5, seed=5)]))
    assert place.store.peek("user-1").state == learned(place, triplets(20))


def test_letters_are_sent_again_once_the_cause_is_corrected(place):
    # Given refused events: of two new items, and one that nobody can correct
    fields = {"type": "triplet", "model": "shop", "relevant": "i1", "irrelevant": "i2"}
    new = [json.dumps({**fields, "query": f"n{number}"}).encode() for number in (0, 1)]
    place.send(new[0], b"{broken", new[1])
    summary = "2 unknown_item, 1 not_json; 3 still open"
    wait_for(lambda: summary in place.omdml("letters", "list"), "three letters", 30, place.worker)
    letter = json.loads(place.omdml("letters", "list", "--json").splitlines()[0])
    explained = place.omdml("letters", "explain", f"{letter['partition'][1]}/{letter['offset']}")
    assert "unknown_item" in explained
    assert "would not be learned: " in explained
    assert "sent 0; 3 would" in place.omdml("letters", "resend")
    # If the items are added, I expect their events learned, each once, however often they are sent again.
    features = items()[0]
    add_items(place.file.parent / "items", {name: x[:2] for name, x in features.items()}, ids=["n0", "n1"])
    summary = "would send 2; 1 would"
    wait_for(lambda: summary in place.omdml("letters", "resend", "--dry-run"), "the worker to save", 30, place.worker)
    assert "sent 2; 1 would" in place.omdml("letters", "resend")
    wait_for(lambda: place.served() == 2, "two events to be live", 30, place.worker)
    assert "sent 0; 1 would" in place.omdml("letters", "resend")
    assert "2 unknown_item, 1 not_json; 1 still open" in place.omdml("letters", "list")
    assert place.omdml("letters", "list").count(" sent again ") == 2
    assert "\n1 not_json; 1 still open" in place.omdml("letters", "list", "--open")
    # What nobody can correct is dismissed, and no longer open.
    assert "1 letter dismissed, 0 still open" in place.omdml("letters", "dismiss", "--reason", "not_json")
    assert "no open dead letter, of 3" in place.omdml("letters", "list", "--open")
    assert "sent 0; 0 would" in place.omdml("letters", "resend")
    assert place.worker.stop() == 0
    assert place.store.peek("shop").version == 2


def test_a_node_shows_letters_and_health_and_sends_letters_again(place):
    # Given refused events: of a new item, and one that nobody can correct
    fields = {"type": "triplet", "model": "shop", "query": "n0", "relevant": "i1", "irrelevant": "i2"}
    place.send(json.dumps(fields).encode(), b"{broken")
    with httpx.Client(base_url=f"http://127.0.0.1:{place.port}", timeout=60) as node:

        def listed(**asked):
            return node.get("/letters", params=asked).raise_for_status().json()

        wait_for(lambda: listed()["total"] == 2, "two letters", 60, place.worker)
        letters = listed(reason="unknown_item")
        (letter,) = letters["letters"]
        assert (letters["open"], letter["model"], letter["since_then"]) == (1, "shop", "")
        assert json.loads(letter["event"]) == fields
        assert listed()["reasons"] == {"unknown_item": 1, "not_json": 1}

        def explained():
            return node.get("/letters/explain", params={"position": letter["position"]}).raise_for_status().json()

        def settle(verb, *positions):
            return node.post(f"/letters/{verb}", json={"positions": positions}).raise_for_status().json()

        assert not explained()["learnable"]
        assert settle("resend", letter["position"])["settled"] == 0
        # If the item is added, I expect its event learned, once, however often it is sent again.
        add_items(place.file.parent / "items", {name: x[:1] for name, x in items()[0].items()}, ids=["n0"])
        wait_for(lambda: explained()["learnable"], "the worker to save", 30, place.worker)
        assert settle("resend", letter["position"]) == {"settled": 1, "left": {}}
        assert settle("resend", letter["position"]) == {"settled": 0, "left": {"it was sent again before": 1}}
        wait_for(lambda: place.served() == 1, "the event to be live", 30, place.worker)
        assert explained()["since_then"] == "sent again"
        (other,) = listed(open="true")["letters"]
        # What nobody can correct is dismissed, and no longer open.
        assert settle("dismiss", other["position"])["settled"] == 1
        assert listed(open="true")["total"] == 0
        seen = node.get("/status").raise_for_status().json()
        assert (seen["status"]["models"]["count"], seen["status"]["letters"]["open"]) == (1, 0)
        assert all(
            partition["owner"] in seen["status"]["log"]["workers"] for partition in seen["status"]["log"]["partitions"]
        )
        assert {"log", "store", "checkpoints", "letters"} <= {finding["check"] for finding in seen["findings"]}


def test_operators_who_send_letters_again_at_the_same_time_send_each_event_once(place, monkeypatch):
    # Given letters whose items came later
    fields = {"type": "triplet", "model": "shop", "relevant": "i1", "irrelevant": "i2"}
    place.send(*(json.dumps({**fields, "query": f"n{number}"}).encode() for number in (0, 1)))
    wait_for(lambda: "2 unknown_item" in place.omdml("letters", "list"), "two letters", 30, place.worker)
    add_items(place.file.parent / "items", {name: x[:2] for name, x in items()[0].items()}, ids=["n0", "n1"])
    plan = "would send 2; 0 would"
    wait_for(lambda: plan in place.omdml("letters", "resend", "--dry-run"), "the worker to save", 30, place.worker)
    # If one of them sends all, from begin to end, before the other one's first step to send
    others = []

    def late(*arguments):
        monkeypatch.setattr(dead_letters, "open_sender", open_sender)
        others.append(place.omdml("letters", "resend"))
        return open_sender(*arguments)

    monkeypatch.setattr(dead_letters, "open_sender", late)
    # I expect nothing left to send for the other one
    assert "sent 0; 0 would" in place.omdml("letters", "resend")
    assert "sent 2; 0 would" in others[0]
    wait_for(lambda: place.served() == 2, "two events to be live", 30, place.worker)
    assert place.worker.stop() == 0
    assert place.store.peek("shop").version == 2


def test_an_older_version_stays_live_until_the_model_is_unpinned(place):
    place.send(*events(10))
    wait_for(lambda: place.served() == 10, "10 events to be live", 30, place.worker)
    place.send(*events(10, seed=1))
    wait_for(lambda: place.served() == 20, "20 events to be live", 30, place.worker)
    assert "version 10 is live (before: version 20), pinned" in place.omdml("rollback", "shop", "--version", "10")
    wait_for(lambda: place.served() == 10, "version 10 to be live again", 30, place.node)
    place.send(*events(5, seed=2))
    wait_for(lambda: (saved := place.store.peek("shop")) and saved.version == 25, "a checkpoint", 30, place.worker)
    assert place.served() == 10
    place.omdml("unpin", "shop")
    wait_for(lambda: place.served() == 25, "the newest version to be live", 30, place.node)
    assert "was not pinned, version 25 is live" in place.omdml("unpin", "shop")
    result = place.omdml("history", "shop")
    assert all(word in result for word in ("rolled back", "held", "unpinned"))
    assert "25 comparisons learned" in place.omdml("inspect", "shop")
    assert "nearest items are the same" in place.omdml("diff", "shop", "10")
