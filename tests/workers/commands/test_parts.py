"""Commands about a model in parts."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.wiring.feedback_log import open_sink
from omdml.workers.wiring.worker import build_worker
from tests.support.worlds import catalogue, events, run_until_idle


@pytest.fixture(scope="module")
def installation(tmp_path_factory):
    """The configuration of a store in a folder, in which a worker learned a model in parts from a log in files."""
    folder = tmp_path_factory.mktemp("parts")
    catalogue(folder / "items")
    file = folder / "omdml.toml"
    file.write_text(
        f'[log]\nkind = "file"\npath = "{folder}/log"\nletters = "{folder}/letters"\n'
        f'[store]\nurl = "dir:{folder}/state"\n[catalogues.items]\npath = "{folder}/items"\n'
        '[models.hot]\ncoordinates = "features"\nparts = true\n[models.old]\ncoordinates = "features"\n'
    )
    configuration = load(str(file), {}, {})
    sink = open_sink(configuration.log)
    for payload in events(120, model="hot"):
        sink.send(payload, "hot")
    sink.close()
    worker = build_worker(configuration, CollectorRegistry())
    run_until_idle(worker, 10)
    worker.stop()
    worker.run()
    return file


def run(*command):
    """The exit code of a command, and what it prints, in one line."""
    answer = CliRunner().invoke(main, list(command))
    return answer.exit_code, " ".join(answer.output.split())


def test_history_and_inspect_show_the_vector_and_its_replay_has_the_same_bytes(installation, tmp_path):
    lines = CliRunner().invoke(main, ["history", "hot", "--json", "-c", str(installation)]).output.splitlines()
    vector = json.loads(lines[-1])["vector"]
    assert vector.startswith("0:")
    assert vector in run("history", "hot", "-c", str(installation))[1]
    assert vector in run("inspect", "hot", "-c", str(installation))[1]
    code, text = run(
        "replay", "--model", "hot", "--vector", vector, "--save", str(tmp_path / "s"), "-c", str(installation)
    )
    assert code == 0, text
    assert "in the store has the same bytes" in text
    assert (tmp_path / "s").stat().st_size > 1000


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["replay", "--model", "hot"], "pass --vector"),
        (["replay", "--model", "hot", "--publish"], "cannot begin from a replay"),
        (["forget", "hot", "--user", "u", "--yes"], "omdml models reset hot"),
        (["replay", "--model", "old", "--vector", "0:3"], "is for models in parts"),
        (["replay", "--model", "hot", "--vector", "zero"], "expected PARTITION:OFFSET"),
        (["models", "delete", "hot::part-0", "--yes"], "omdml models delete hot"),
        (["models", "reset", "hot::part-0", "--yes"], "omdml models reset hot"),
    ],
)
def test_what_a_model_in_parts_cannot_do_is_refused_with_what_to_do_instead(installation, command, says):
    code, text = run(*command, "-c", str(installation))
    assert code != 0
    assert says in text


def test_models_are_listed_with_their_parts(installation):
    assert "a part of hot" in run("models", "list", "-c", str(installation))[1]


def test_copy_reset_and_delete_take_the_whole_model(installation):
    assert "version" in run("models", "copy", "hot", "old", "-c", str(installation))[1]
    assert "each of its parts (1) is at its start" in run("models", "reset", "hot", "--yes", "-c", str(installation))[1]
    assert "hot: deleted" in run("models", "delete", "hot", "--yes", "-c", str(installation))[1]
    assert "a part of hot" not in run("models", "list", "-c", str(installation))[1]
    assert "goes live with the next worker" in run("models", "copy", "old", "hot", "-c", str(installation))[1]
