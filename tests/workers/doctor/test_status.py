"""``omdml status``: the whole service on one screen, whichever part of it is down."""

from __future__ import annotations

import json
import re
import shutil

import httpx
import msgspec
import pytest
from click.testing import CliRunner

from deploy.local.ports import free_port
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.cli import main
from omdml.workers.configuration.config import StoreConfig
from omdml.workers.doctor.checks.node import NodeStatus
from omdml.workers.doctor.screen import LABEL, models_texts, screen
from omdml.workers.doctor.status import (
    CatalogueStatus,
    Inspection,
    LettersStatus,
    LogStatus,
    ModelsStatus,
    PartitionStatus,
    Status,
    StoreStatus,
)
from tests.support.installations import UNKNOWN
from tests.support.shops import Shop, listening
from tests.support.waiting import until
from tests.support.worlds import catalogue, configuration, events


def status_screen(shop, *options, width=80, environment=None):
    """The exit code of a look, and its lines."""
    variables = {"COLUMNS": str(width), **(environment or {})}
    printed = CliRunner(env=variables).invoke(main, ["status", *options, "-c", str(shop.file)])
    return printed.exit_code, printed.output.splitlines()


def value(lines, label):
    """The text beside a label of the screen, its lines joined."""
    (start,) = (number for number, line in enumerate(lines) if line.startswith(label))
    following = next((number for number, line in enumerate(lines[start + 1 :]) if not line.startswith(" ")), len(lines))
    return " ".join(line[11:].strip() for line in lines[start : start + 1 + following])


def test_a_service_before_its_first_event_is_shown_and_nothing_is_made(shop):
    shutil.rmtree(shop.folder / "feedback", ignore_errors=True)
    code, lines = status_screen(shop, width=200)
    assert code == 0
    assert value(lines, "log") == f"{shop.folder}/feedback: it begins with the first event"
    assert value(lines, "workers") == "none is running"
    assert value(lines, "models").startswith("0 in the store not begun: 1 (shop)")
    assert "folder that the first worker makes" in value(lines, "store")
    assert not (shop.folder / "state").exists()


def test_a_worker_and_what_it_learned_are_shown(shop):
    shop.learn(60)
    shop.tell(*events(5, 1))
    worker = shop.living()
    try:
        code, lines = status_screen(shop)
    finally:
        worker.services.source.close()
    assert code == 0
    assert value(lines, "workers").startswith("process ")
    # A busy machine shows it a second later.
    assert re.match(r"1 in the store, newest shop version 65, \d+ s ago", value(lines, "models"))
    assert "none is waiting, withheld by the guard or pinned" in value(lines, "models")
    assert value(lines, "catalogues").startswith("items: 120 items, generation ")
    assert lines[-1] == "doctor     finds nothing wrong with this; `omdml doctor` checks more"


def test_without_a_worker_what_waits_is_counted_and_the_doctor_is_named(shop):
    shop.learn(60)
    shop.tell(*events(5, 1), UNKNOWN)
    code, lines = status_screen(shop)
    assert code == 0
    assert value(lines, "log").endswith("6 events to be learned")
    assert value(lines, "workers") == "none is running; nobody reads partition 0 (lag 6)"
    assert lines[-1] == "doctor     has 1 finding about this (1 error): run `omdml doctor`"


def test_a_store_that_is_gone_is_not_called_one_that_is_to_come(shop):
    shop.learn(20)
    shop.tell(*events(5, 1))
    worker = shop.living()
    worker.services.source.close()
    (shop.folder / "state").rename(shop.folder / "unmounted")
    _, lines = status_screen(shop, width=200)
    assert value(lines, "store").endswith("folder that is not there, although workers have read the log")
    assert lines[-1] == "doctor     has 1 finding about this (1 error): run `omdml doctor`"


def test_a_log_that_is_gone_is_not_called_one_that_is_to_come(shop):
    shop.learn(20)
    shutil.rmtree(shop.folder / "feedback", ignore_errors=True)
    code, lines = status_screen(shop, width=200)
    assert code == 0
    assert value(lines, "log") == (
        f"{shop.folder}/feedback: it is not there, although the store holds models; `omdml doctor` says what to do"
    )
    assert value(lines, "workers") == "not known: the log is not there (see log)"


def test_dead_letters_of_the_last_hour_are_counted_by_reason(shop):
    shop.tell(UNKNOWN, b"{broken", UNKNOWN)
    shop.learn(20)
    _, lines = status_screen(shop)
    assert value(lines, "letters") == "3 in the last hour (2 unknown_item, 1 not_json), 3 open"


def test_letters_that_could_not_be_read_in_time_are_not_called_none(shop, monkeypatch):
    shop.learn(20)
    monkeypatch.setattr("omdml.workers.doctor.facts.newest_letters", lambda log, within_s: ([], False))
    # Without a worker the doctor would have a finding.
    worker = shop.living()
    try:
        _, lines = status_screen(shop)
    finally:
        worker.services.source.close()
    assert value(lines, "letters") == (
        "not counted: the log was too slow for this screen, so there may be any number. To count them: "
        "omdml letters list"
    )
    assert value(lines, "doctor") == (
        "finds nothing wrong with the rest, but dead letters could not be counted (see letters)"
    )


def test_models_that_wait_or_are_pinned_are_named(shop):
    shop.learn(60)
    shop.omdml("pin", "shop")
    for checkpoint in (shop.folder / "state").rglob("*.checkpoint"):
        checkpoint.write_bytes(checkpoint.read_bytes()[:-9])
    code, lines = status_screen(shop)
    assert code == 0
    models = value(lines, "models")
    assert "waiting: 1 (shop)" in models
    assert "pinned: 1 (shop)" in models
    assert "none is withheld by the guard" in models


def test_a_store_that_is_away_is_one_sentence_and_the_rest_is_shown(shop):
    shop.learn(60)
    shop.tell(*events(5, 1))
    code, lines = status_screen(shop, environment={"OMDML_STORE__URL": f"redis://127.0.0.1:{free_port()}"})
    assert code == 1
    assert "is it up, and reachable from here? Or correct store.url" in value(lines, "store")
    assert value(lines, "models") == "not known: the store did not answer (see store)"
    assert value(lines, "log").endswith("5 events to be learned")
    assert lines[-1].endswith("has 1 finding about this (1 error): run `omdml doctor`")


def test_all_models_of_the_store_live_on_the_one_partition_of_files(shop):
    def models(**environment):
        printed = CliRunner(env=environment).invoke(main, ["status", "--json", "-c", str(shop.file)])
        (partition,) = json.loads(printed.stdout)["log"]["partitions"]
        return partition["models"]

    shop.learn(60)
    assert models() == 1
    # Without the store, the number of models is not known.
    assert models(OMDML_STORE__URL=f"redis://127.0.0.1:{free_port()}") is None


def test_a_kafka_that_is_away_is_one_sentence_and_the_store_is_shown(shop):
    shop.learn(60)
    away = {"OMDML_LOG__KIND": "kafka", "OMDML_LOG__SERVERS": f"127.0.0.1:{free_port()}"}
    shop.file.write_text(shop.file.read_text().replace(f'[log]\npath = "{shop.folder}/feedback"\n', "[log]\n"))
    shop.file.write_text(shop.file.read_text().replace(f'letters = "{shop.folder}/letters"\n', ""))
    code, lines = status_screen(shop, environment=away)
    assert code == 1
    assert "127.0.0.1" in value(lines, "log")
    assert value(lines, "workers") == "not known: the log did not answer (see log)"
    assert "1 in the store" in value(lines, "models")


def test_a_catalogue_that_is_gone_ends_with_the_code_of_the_configuration(shop):
    shop.learn(60)
    shutil.rmtree(shop.folder / "items")
    code, lines = status_screen(shop)
    assert code == 2
    assert "catalogues.items" in value(lines, "catalogues")
    assert "1 in the store" in value(lines, "models")


@pytest.fixture
def patient(monkeypatch):
    """The status waits for a node as long as a busy machine needs."""
    monkeypatch.setattr("omdml.workers.doctor.status.ASK_S", 10.0)


def test_the_node_of_this_machine_says_how_it_is(shop, tmp_path, patient):
    other = Shop(tmp_path / "other")
    with other.serving() as node, listening(node) as server:
        variables = {"OMDML_NODE__BIND": server.url.removeprefix("http://")}
        assert value(status_screen(shop, environment=variables)[1], "node").endswith("is ready")
    _, lines = status_screen(shop, environment=variables)
    assert value(lines, "node").startswith("none runs at 127.0.0.1:")


def test_a_node_that_has_more_than_its_store_is_named_with_what_to_do(shop, tmp_path, patient):
    # Given a node that goes on with what it has, because its store was emptied while it ran
    shop.learn(20)
    other = Shop(tmp_path / "other")
    other.learn()
    with other.serving() as node, listening(node) as server:
        node._refresher._store = MemoryStore()
        until(lambda: node.readiness.fell_back())
        bind = {"OMDML_NODE__BIND": server.url.removeprefix("http://")}
        ready = httpx.get(f"{server.url}/readyz", verify=False).json()
        _, lines = status_screen(shop, environment=bind)
        doctor = CliRunner(env=bind).invoke(main, ["doctor", "--json", "-c", str(shop.file)]).output
    # I expect the node, the status and the doctor to say so.
    assert ready["store_fell_back"] == {"shop": {"store": None, "serving": 20}}
    assert value(lines, "node").endswith("fell back behind it (see omdml doctor before you restart it): 1 (shop)")
    (finding,) = (finding for finding in json.loads(doctor)["findings"] if finding["check"] == "node")
    assert finding["level"] == "warning"
    # A node that is restarted while its store is empty has nothing to answer with.
    assert "If the store is not empty and is to stay as it is, restart the node to follow it" in finding["text"]


def test_a_node_that_does_not_answer_keeps_nobody_waiting(shop):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        _, lines = status_screen(shop, environment={"OMDML_NODE__BIND": f"127.0.0.1:{silent.getsockname()[1]}"})
    assert re.match(r"what listens at 127.0.0.1:\d+ accepts connections and answered nothing", value(lines, "node"))


def test_programs_get_the_same_as_json(shop):
    shop.learn(60)
    code, lines = status_screen(shop, "--json")
    result = json.loads("\n".join(lines))
    assert (code, result["log"]["lag"], result["problems"]) == (0, 0, {})
    assert (result["models"]["count"], result["models"]["newest"], result["models"]["newest_version"]) == (
        1,
        "shop",
        60,
    )
    assert msgspec.convert(result, Status).store.kind == "folder"
    # The warning is that no worker is running.
    assert (result["errors"], result["warnings"]) == (0, 1)


def crowded(names=50, partitions=64, workers=12):
    """A service of which there is much to tell in every place."""
    models = [f"a-model-with-a-long-name-{number}" for number in range(names)]
    parts = [
        PartitionStatus(
            number=number, lag=10**9 + number, owner=f"worker-{number % workers} at 10.20.30.40" if number % 9 else ""
        )
        for number in range(partitions)
    ]
    return Status(
        at=1e9,
        log=LogStatus(
            kind="kafka",
            name="a-topic-with-a-long-name at " + ",".join(f"broker-{number}.example:9092" for number in range(9)),
            lag=10**12,
            workers=[f"worker-{number} at 10.20.30.40" for number in range(workers)],
            partitions=parts,
        ),
        models=ModelsStatus(
            count=10**5, looked=900, newest=models[0] * 3, newest_version=10**9, newest_at=1.0, waiting=models,
            withheld=models, pinned=models, not_begun=models,
        ),
        node=NodeStatus(address="127.0.0.1:8080", state=""),
        letters=LettersStatus(last_hour={f"reason_{number}": 10**6 for number in range(12)}, open=10**7, whole=False),
        store=StoreStatus(
            address="redis://" + "a" * 100, kind="Valkey 8.1", durable=False, used_bytes=10**12, limit_bytes=10**13
        ),
        catalogues=[
            CatalogueStatus(name=f"catalogue-{number}", items=10**6, generation="8b8db96f") for number in range(9)
        ],
        problems={},
        errors=12,
        warnings=30,
    )  # fmt: skip


def test_how_many_models_were_looked_at_fits_into_a_line():
    models = ModelsStatus(
        count=10_000, looked=900, newest=None, newest_version=None, newest_at=None, waiting=[], withheld=[], pinned=[],
        not_begun=[],
    )  # fmt: skip
    assert max(map(len, models_texts(models, 1e9))) <= 80 - LABEL


class OnPostgres:
    """A store on a database that status knows nothing about."""

    def __init__(self):
        self._models = MemoryStore()

    def __getattr__(self, name):
        return getattr(self._models, name)


def test_a_store_of_another_kind_is_called_what_its_address_says(tmp_path):
    catalogue(tmp_path / "items")
    inspection = Inspection(configuration(tmp_path / "items"))
    inspection.configuration = msgspec.structs.replace(
        inspection.configuration, store=StoreConfig(url="postgres://learned")
    )
    inspection.facts.store, inspection.facts.safety = OnPostgres(), None
    status = inspection.status()
    assert status.store == StoreStatus(address="postgres://learned", kind="postgres store", durable=None)
    (line,) = (line for line in screen(status, 80) if line.startswith("store"))
    assert line == "store      postgres://learned: postgres store"


@pytest.mark.parametrize("width", [80, 120])
def test_however_much_there_is_to_tell_one_screen_holds_it(width):
    lines = list(screen(crowded(), width))
    assert len(lines) <= 24
    assert max(map(len, lines)) <= width
    assert lines[-1].startswith("doctor     has 42 findings")


def test_names_that_senders_chose_cannot_move_the_cursor():
    names = {state: [f"{state}-\x1b[2J"] for state in ("pinned", "waiting", "withheld", "not_begun")}
    models = msgspec.structs.replace(crowded().models, newest="newest-\x1b[2J", **names)
    lines = list(screen(msgspec.structs.replace(crowded(), models=models), 80))
    assert [name for name in ("newest", *names) if f"{name}-" not in " ".join(lines)] == []
    assert all(line.isprintable() for line in lines)
