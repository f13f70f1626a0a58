"""The page of metrics and the code name the same metrics, and documents name no metric that does not exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from deploy.metrics_page import PAGE, advice, described, page, registries

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = ("_bucket", "_count", "_sum")
DOCUMENTS = [
    "README.md",
    "CHANGELOG.md",
    "DECISIONS.md",
    *(f"deploy/{path.name}" for path in (ROOT / "deploy").glob("*.md")),
]
# Names of modules and loggers that look like metrics.
OTHERS = ("omdml_learned", "omdml_worker_", "omdml_node_", "omdml_http_", "omdml_store_", "omdml_route_")


@pytest.fixture(scope="module")
def metrics():
    return described()


def test_the_page_is_what_the_code_says(metrics):
    text = PAGE.read_text()
    assert text == page(metrics, advice(text)), "`make pages` writes it again"


def test_every_metric_has_a_sentence_about_what_to_do(metrics):
    advised = advice(PAGE.read_text())
    assert advised.keys() == metrics.keys()
    assert not [name for name, sentence in advised.items() if not sentence.endswith(".")]


def test_names_follow_the_conventions(metrics):
    for metric in metrics.values():
        assert (metric.type == "counter") == metric.name.endswith("_total"), metric.name
        assert metric.meaning, metric.name
        if metric.type == "histogram":
            assert metric.name.endswith("_seconds")
        if "timestamp" in metric.name:
            assert metric.name.endswith("_timestamp_seconds")


def test_a_new_metric_makes_the_committed_page_outdated(metrics):
    new = next(iter(metrics.values()))._replace(name="omdml_worker_new_total")
    text = PAGE.read_text()
    assert text != page({**metrics, new.name: new}, advice(text))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_name_metrics_that_are_there(metrics, name):
    matches = set(re.findall(r"(?<![:\w])omdml_[a-z]+_[a-z_]+\b(?!:)", (ROOT / name).read_text()))
    allowed = {metric + suffix for metric in metrics for suffix in ("", *SUFFIXES)}
    assert matches - allowed - set(OTHERS) == set()


def test_pages_of_metrics_are_as_prometheus_wants_them(promtool):
    for registry in registries():
        page = generate_latest(registry)
        done = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
