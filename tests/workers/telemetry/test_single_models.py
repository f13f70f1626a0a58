"""/metrics/models: single models of a worker and of a node, and never too many of them."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from omdml.errors import ConfigurationError
from omdml.workers.learning.measures import SINGLE
from omdml.workers.telemetry import single_models
from omdml.workers.telemetry.probes import serve_probes
from omdml.workers.telemetry.registry import new_registry
from omdml.workers.telemetry.single_models import SingleModels
from tests.support.shops import Shop, asking
from tests.support.worlds import World, events, run_until_idle


def values(page):
    """The value of each metric, by metric and model."""
    return {
        (sample.name, sample.labels.get("model")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


@pytest.fixture
def worker(tmp_path):
    """A worker that learned two models of a pattern, and one with a name."""
    world = World(tmp_path)
    worker = world.worker()
    for model, count in (("shop", 30), ("user-1", 20), ("user-2", 10)):
        world.send(*events(count, model=model), key=model)
        run_until_idle(worker)
    return worker


@pytest.fixture
def client(worker):
    models = SingleModels("worker", SINGLE)
    models.ask = worker.single_models
    port = serve_probes("127.0.0.1", 0, new_registry(), None, models)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
        yield client


def test_a_worker_tells_of_each_model_that_is_in_memory(worker, client):
    measured = values(client.get("/metrics/models").text)
    loaded = {name: model for owned in worker.partitions.values() for name, model in owned.models.loaded.items()}
    assert {"shop", "user-1", "user-2"} <= loaded.keys()
    for name, model in loaded.items():
        assert measured["omdml_worker_model_version", name] == model.learner.version > 0
        assert measured["omdml_worker_model_published_version", name] == model.published
        assert measured["omdml_worker_model_resident_bytes", name] == model.size > 0
        assert measured["omdml_worker_model_withheld", name] == 0
    assert measured["omdml_worker_model_left_out", None] == 0
    # The page that is scraped often does not have them.
    assert "omdml_worker_model_" not in client.get("/metrics").text


def test_a_pattern_or_a_name_asks_for_some_models(client):
    def named(query):
        return {model for _, model in values(client.get(f"/metrics/models{query}").text) if model}

    assert named("?model=user-*") == {"user-1", "user-2"}
    assert named("?model=shop") == {"shop"}
    assert named("?model=nobody") == set()


def test_a_page_tells_of_no_more_models_than_its_limit(client, monkeypatch):
    monkeypatch.setattr(single_models, "MOST", 2)
    measured = values(client.get("/metrics/models").text)
    assert {model for _, model in measured if model} == {"shop", "user-1"}
    assert measured["omdml_worker_model_left_out", None] == 1


@pytest.mark.parametrize("query", ["modle=shop", "model=a&model=b", "model=a&page=2"])
def test_a_query_that_is_not_understood_is_refused(client, query):
    answer = client.get(f"/metrics/models?{query}")
    assert answer.status_code == 400
    assert "expected nothing, or model=NAME once" in answer.json()["message"]
    with pytest.raises(ConfigurationError):
        SingleModels("node", {}).page(query)


def test_a_worker_that_still_starts_tells_of_no_model():
    port = serve_probes("127.0.0.1", 0, new_registry(), None, SingleModels("worker", SINGLE))
    measured = values(httpx.get(f"http://127.0.0.1:{port}/metrics/models").text)
    assert measured == {("omdml_worker_model_left_out", None): 0}


def test_a_node_tells_of_each_model_that_it_loaded(tmp_path):
    shop = Shop(tmp_path)
    with shop.serving() as node, asking(node) as client:
        view = node.view("shop")
        measured = values(client.get("/metrics/models?model=sh*").text)
        assert measured["omdml_node_model_snapshot_version", "shop"] == view.snapshot.version
        assert measured["omdml_node_model_gallery_items", "shop"] == view.count
        assert measured["omdml_node_model_gallery_bytes", "shop"] == view.nbytes
        refused = client.get("/metrics/models?modle=shop")
        assert refused.status_code == 400
        assert "model=NAME once" in refused.json()["message"]
