"""The compose file is one, and its services find each other and the files they need."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.learning.schedule import FINISH_S
from omdml.workers.node.http.server import GRACE_S
from tests.support.pages.documents import OPERATIONS, block_that_begins, operators_commands, read
from tests.support.processes import ROOT

FOLDER = ROOT / "deploy/compose"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
OURS = ("topics", "worker", "node")
# These are the user's own.
BROUGHT = {"./items", "./token"}


def check(path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", path]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_compose_file_fits_the_schema_of_compose(tmp_path):
    done = check(FOLDER / "compose.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (FOLDER / "compose.yaml").read_text()
    mistaken = tmp_path / "compose.yaml"
    mistaken.write_text(text.replace("    depends_on:", "    depend_on:"))
    assert check(mistaken).returncode != 0


def test_files_that_are_mounted_are_there():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source not in BROUGHT and source not in COMPOSE["volumes"]:
                assert (FOLDER / source).is_file(), source


@pytest.fixture
def settings(tmp_path):
    text = (FOLDER / "omdml.toml").read_text()
    (tmp_path / "token").write_text("t" * 64)
    assert "./token:/run/secrets/token:ro" in SERVICES["node"]["volumes"]
    (tmp_path / "omdml.toml").write_text(text.replace("/run/secrets/token", str(tmp_path / "token")))
    return load(str(tmp_path / "omdml.toml"), {})


def test_settings_name_the_services_and_the_ports_that_others_ask(settings):
    assert settings.log.servers == SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split("//")[1]
    assert settings.store.url == "redis://valkey:6379"
    assert "./items:" + settings.catalogues["shop"].path + ":ro" in SERVICES["worker"]["volumes"]
    jobs = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in jobs}
    ports = {"worker": settings.worker.bind.split(":")[1], "node": settings.node.bind.split(":")[1]}
    assert targets == {f"omdml-{role}": [f"{role}:{port}"] for role, port in ports.items()}
    image = (ROOT / "deploy/container/Dockerfile").read_text()
    assert f"HEALTH_URL=http://127.0.0.1:{ports['worker']}/healthz\n" in image
    assert SERVICES["node"]["environment"]["HEALTH_URL"] == f"http://127.0.0.1:{ports['node']}/healthz"
    assert SERVICES["node"]["ports"] == [f"127.0.0.1:{ports['node']}:{ports['node']}"]


def test_our_services_run_commands_of_this_release_shut_in():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    for name in OURS:
        service, command = SERVICES[name], main
        assert service["image"] == f"${{IMAGE:-omdml:{version}}}"
        for word in service["command"][: service["command"].index("--config")]:
            command = command.commands[word]
        assert "./omdml.toml:" + service["command"][-1] + ":ro" in service["volumes"]
        assert service["read_only"]
        assert (service["cap_drop"], service["security_opt"]) == (["ALL"], ["no-new-privileges:true"])
        assert any(mount.startswith("/var/cache/omdml") for mount in service["tmpfs"])
    assert int(SERVICES["worker"]["stop_grace_period"].rstrip("s")) >= 2 * FINISH_S
    assert int(SERVICES["node"]["stop_grace_period"].rstrip("s")) >= 2 * GRACE_S
    for kustomization in ("base", "example"):
        text = (ROOT / "deploy/kubernetes" / kustomization / "kustomization.yaml").read_text()
        assert yaml.safe_load(text)["images"][0]["newTag"] == version


def test_grafana_finds_prometheus_and_the_board():
    (source,) = yaml.safe_load((FOLDER / "grafana-source.yaml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((FOLDER / "grafana-boards.yaml").read_text())["providers"]
    board = f"{provider['options']['path']}/omdml.json"
    for name in ("omdml.json", "omdml-model.json"):
        mounted = f"../grafana/{name}:{provider['options']['path']}/{name}:ro"
        assert mounted in SERVICES["grafana"]["volumes"]
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == board
    prometheus = SERVICES["prometheus"]
    assert "../prometheus/rules.yml:/etc/prometheus/rules.yml:ro" in prometheus["volumes"]
    options = dict(option.removeprefix("--").split("=") for option in prometheus["command"])
    for mounted in (options["config.file"], options["storage.tsdb.path"]):
        assert any(mounted in volume.split(":") for volume in prometheus["volumes"])
    assert options["enable-feature"] == "exemplar-storage"


def test_prometheus_takes_its_settings(promtool, tmp_path):
    for file in (FOLDER / "prometheus.yml", Path(ROOT / "deploy/prometheus/rules.yml")):
        (tmp_path / file.name).write_text(file.read_text())
    command = [promtool, "check", "config", tmp_path / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_runbooks_commands_name_services_and_what_they_mount():
    called = operators_commands("With Compose")
    assert tuple(called) == OPERATIONS
    words = [command.split() for commands in called.values() for command in commands if " " in command]
    assert len(words) == len(called)
    assert all(each[:2] == ["docker", "compose"] and "worker" in each for each in words)
    (run,) = [each for each in words if each[2] == "run"]
    command, file = run[run.index("worker") + 1], run[-1]
    assert command in main.commands
    assert f"./omdml.toml:{file}:ro" in SERVICES["worker"]["volumes"]
    # What it depends on, it would start first: also the service that makes the topics.
    assert "topics" in SERVICES["worker"]["depends_on"]
    assert "--no-deps" in run


def test_the_runbook_goes_on_behind_a_gap_with_a_command_that_there_is():
    lines = block_that_begins(read("deploy/RUNBOOK.md"), "docker compose stop worker").splitlines()
    stop, run, start = (line.split() for line in lines)
    assert (stop[:3], start[:3]) == (["docker", "compose", "stop"], ["docker", "compose", "up"])
    # The service's own command, and the option: nothing else differs from what Compose starts.
    service = run.index("worker")
    assert run[service + 1 :] == [*SERVICES["worker"]["command"], "--accept-gap"]
    assert "--accept-gap" in {name for parameter in main.commands["worker"].params for name in parameter.opts}
    assert {word for words in (stop, run, start) for word in words if word in SERVICES} == {"worker"}
