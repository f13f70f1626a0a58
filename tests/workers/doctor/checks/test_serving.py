"""What the doctor says of the versions that are live: whether nodes can load them, withheld ones, pins, drift."""

from __future__ import annotations

import shutil
import time

import msgspec
from click.testing import CliRunner

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.workers.cli import main
from omdml.workers.configuration.specs import Specs
from omdml.workers.doctor.checks import installation, serving
from omdml.workers.doctor.findings import Level
from omdml.workers.operate import models
from tests.support.installations import problem
from tests.support.worlds import ITEMS, items


def test_a_live_version_of_another_catalogue_generation_is_an_error(shop):
    shop.learn()
    assert "nodes can load what is live of 1 model" in problem(shop, "serving", Level.OK)
    features = {name: x[: ITEMS - 1] for name, x in items()[0].items()}
    build_catalogue(shop.folder / "items", features, ids=[f"i{row}" for row in range(ITEMS - 1)], replace=True)
    text = problem(shop, "serving", Level.ERROR)
    assert "no node can load it: learned on catalogue generation" in text
    assert "restart the workers" in text.lower()
    assert "otherwise with its next event" in text
    result = shop.omdml("history", "shop")
    assert "can nodes load it: no: learned on catalogue generation" in result


def test_doctor_and_worker_give_the_same_advice_about_other_dimensions(shop):
    # Given a model, and then a catalogue with one modality less
    shop.learn()
    name, features = next(iter(items()[0].items()))
    ids = [f"i{row}" for row in range(ITEMS)]
    build_catalogue(shop.folder / "items", {name: features}, ids=ids, replace=True)
    # I expect the doctor's findings and the refusal of a worker to name the command that works.
    command = "omdml replay --model shop --publish --replace"
    for check in ("serving", "checkpoints"):
        text = problem(shop, check, Level.ERROR)
        assert command in text
        assert "models reset" not in text
    refusal = CliRunner().invoke(main, ["worker", "-c", str(shop.file)])
    assert command in refusal.output
    assert "models reset" not in refusal.output
    shop.omdml(*command.split()[1:])
    problem(shop, "serving", Level.OK)
    problem(shop, "checkpoints", Level.OK)


def test_a_rollback_or_pin_to_what_no_node_can_load_is_refused(shop):
    # Given versions of a catalogue that was then built again, while workers go on with what they have
    shop.learn()
    shop.learn(seed=1)
    features = {name: x[: ITEMS - 1] for name, x in items()[0].items()}
    build_catalogue(shop.folder / "items", features, ids=[f"i{row}" for row in range(ITEMS - 1)], replace=True)
    live = shop.store.current("shop")
    older = min(line["version"] for line in shop.store.history("shop"))
    for command in (("rollback", "shop"), ("rollback", "shop", "--version", str(older)), ("pin", "shop")):
        result = CliRunner().invoke(main, [*command, "--config", str(shop.file)])
        text = " ".join(f"{result.output} {result.exception}".split())
        assert "that nodes could serve" in text or "no node could serve it" in text, text
    assert shop.store.current("shop") == live
    # If the catalogue cannot be read here, the command says so, and still rolls back.
    shutil.rmtree(shop.folder / "items")
    assert "cannot check here" in shop.omdml("rollback", "shop", "--version", str(older))
    assert shop.store.current("shop").version == older


def test_a_damaged_live_snapshot_is_an_error_and_a_sound_older_one_is_named(shop):
    shop.learn()
    shop.learn(seed=1)
    live = shop.store.current("shop")
    (path,) = shop.folder.glob(f"state/models/shop/**/*{live.digest}*")
    path.write_bytes(path.read_bytes()[:-9])
    text = problem(shop, "serving", Level.ERROR)
    assert f"model shop: version {live.version} is live but no node can load it: its bytes are damaged" in text
    assert "omdml history shop" in text
    result = shop.omdml("history", "shop")
    assert "no: its bytes are damaged" in result
    assert "published 60 2 yes" in result


def test_a_pin_to_what_a_reset_was_to_forget_is_a_warning_until_it_is_unpinned(shop):
    shop.learn()
    models.reset(shop.store, Specs(shop.configuration, {"items": shop.catalogue}).find("shop"), "shop", "test")
    assert problem(shop, "serving", Level.OK)
    shop.store.move("shop", 60, pin=True)
    text = problem(shop, "serving", Level.WARNING)
    assert "version 60 is live, pinned there since" in text
    assert "was learned before the reset of" in text
    assert "omdml unpin shop" in text
    assert "learned before the reset" in shop.omdml("models", "list")
    shop.store.move("shop", 0, pin=False)
    assert problem(shop, "serving", Level.OK)


def candidate(shop, version):
    """The live snapshot under another version."""
    return msgspec.structs.replace(shop.store.load("shop")[1], version=version)


def test_a_withheld_snapshot_is_explained_and_an_error_after_an_hour(shop, monkeypatch):
    shop.learn()
    epoch = shop.store.claim("shop").epoch
    for version in (70, 80):
        shop.store.publish(candidate(shop, version), epoch, withheld="not as good on 64 held-out queries as version 32")
    text = problem(shop, "serving", Level.WARNING)
    assert "model shop: newer versions have been withheld since" in text
    assert "nodes stay at version 60" in text
    assert "not as good on 64 held-out queries as version 32" in text
    assert "newer versions withheld for" in shop.omdml("models", "list")
    now = time.time()
    monkeypatch.setattr(installation.time, "time", lambda: now + serving.LONG_WITHHELD_S + 60)
    assert "(1 h ago)" in problem(shop, "serving", Level.ERROR)
    monkeypatch.undo()
    shop.store.publish(candidate(shop, 90), epoch)
    assert problem(shop, "serving", Level.OK)


def test_versions_behind_a_pin_are_not_withheld_and_an_old_pin_is_a_warning(shop, monkeypatch):
    shop.learn()
    shop.store.move("shop", 60, pin=True)
    shop.store.publish(candidate(shop, 70), shop.store.claim("shop").epoch)
    assert "1 pinned" in problem(shop, "serving", Level.OK)
    now = time.time()
    monkeypatch.setattr(installation.time, "time", lambda: now + 3 * 86_400)
    text = problem(shop, "serving", Level.WARNING)
    assert "pinned at version 60 since" in text
    assert "(3 d ago)" in text


def test_drift_of_the_last_day_is_a_warning(shop, monkeypatch):
    shop.learn()
    shop.store.note("shop", shop.store.claim("shop").epoch, "drift", "mistakes went from 5% to 20%")
    text = problem(shop, "serving", Level.WARNING)
    assert "model shop: drift was noticed at" in text
    assert "mistakes went from 5% to 20%" in text
    now = time.time()
    monkeypatch.setattr(installation.time, "time", lambda: now + 2 * 86_400)
    assert problem(shop, "serving", Level.OK)
