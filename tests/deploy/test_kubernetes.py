"""Kubernetes understands the manifests, and they agree with each other and with the processes."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.learning.schedule import FINISH_S
from omdml.workers.node.http.server import GRACE_S
from tests.support.pages.documents import block_that_begins, operators_commands, read
from tests.support.servers.rules import RULES

FOLDER = Path(__file__).resolve().parents[2] / "deploy/kubernetes"
BASE = FOLDER / "base"
VERSIONS = ("1.29", "1.37")
# Kinds that Kubernetes does not have itself, so that its schemas do not describe them.
OTHERS = {"Kustomization", "ServiceMonitor"}
SECRETS = {"token": "t" * 64, "store-url": "redis://redis:6379", "catalogue-url": "redis://redis:6379#shop"}


def documents(folder):
    """All objects in a folder's files, by kind and name."""
    parsed = [part for file in sorted(folder.glob("*.yaml")) for part in yaml.safe_load_all(file.read_text())]
    return {(part["kind"], part.get("metadata", {}).get("name")): part for part in parsed}


OBJECTS = documents(BASE)
SETS = {"worker": OBJECTS["StatefulSet", "omdml-worker"], "node": OBJECTS["Deployment", "omdml-node"]}


def labels(role):
    return SETS[role]["spec"]["template"]["metadata"]["labels"]


def container(role):
    (only,) = SETS[role]["spec"]["template"]["spec"]["containers"]
    return only


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_understands_every_object(version):
    for (kind, _), part in OBJECTS.items():
        if kind not in OTHERS:
            kubernetes_validate.validate(part, version, strict=True)
    mistaken = yaml.safe_load(yaml.safe_dump(SETS["worker"]))
    mistaken["spec"]["template"]["spec"]["containers"][0]["livenessProb"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="livenessProb"):
        kubernetes_validate.validate(mistaken, version, strict=True)


@pytest.mark.parametrize("folder", ["base", "example"])
def test_kustomize_finds_all_files_and_leaves_out_none(folder):
    kustomization = documents(FOLDER / folder)["Kustomization", None]
    (generated,) = kustomization["configMapGenerator"]
    assert generated == {**generated, "name": "omdml", "files": ["omdml.toml"]}
    assert (FOLDER / folder / "omdml.toml").exists()
    named = set(kustomization["resources"])
    if folder == "base":
        assert named == {file.name for file in BASE.glob("*.yaml")} - {"kustomization.yaml"}
    else:
        assert named == {"../base"}
        assert generated["behavior"] == "replace"
        assert {each["name"] for each in kustomization["replicas"]} == {
            part["metadata"]["name"] for part in SETS.values()
        }
    assert [image["name"] for image in kustomization["images"]] == ["omdml"]


@pytest.mark.parametrize("folder", ["base", "example"])
def test_the_settings_are_valid_and_read_what_is_mounted(folder, tmp_path):
    text = (FOLDER / folder / "omdml.toml").read_text()
    mounts = {mount["name"]: mount["mountPath"] for mount in container("node")["volumeMounts"]}
    for name, content in SECRETS.items():
        (tmp_path / name).write_text(content)
        assert f'"{mounts["secrets"]}/{name}"' in text
    (tmp_path / "omdml.toml").write_text(text.replace(mounts["secrets"], str(tmp_path)))
    loaded = load(str(tmp_path / "omdml.toml"), {"OMDML_LOG__MEMBER": "omdml-worker-0"})
    ports = {role: container(role)["ports"][0]["containerPort"] for role in SETS}
    assert (loaded.worker.bind, loaded.node.bind) == (f"0.0.0.0:{ports['worker']}", f"0.0.0.0:{ports['node']}")
    assert loaded.log.member == "omdml-worker-0"


@pytest.mark.parametrize("role", SETS)
def test_a_pod_confines_its_process_and_gives_it_time_to_end(role):
    pod, only = SETS[role]["spec"]["template"]["spec"], container(role)
    assert only["args"] == [role, "--config", "/etc/omdml/omdml.toml"]
    assert role in main.commands
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert only[probe]["httpGet"] == {"path": path, "port": "http"}
    waits = int(only["lifecycle"]["preStop"]["exec"]["command"][1]) if "lifecycle" in only else 0
    assert pod["terminationGracePeriodSeconds"] >= waits + 2 * (FINISH_S if role == "worker" else GRACE_S)
    assert pod["securityContext"]["runAsNonRoot"]
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    # Every mount names a volume of the pod, and every volume is mounted.
    assert {mount["name"] for mount in only["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    # Addresses of services in the environment would be taken for settings: OMDML_NODE_PORT and others.
    assert pod["enableServiceLinks"] is False


def test_each_worker_is_a_static_member_under_its_own_name():
    (member,) = [each for each in container("worker")["env"] if each["name"] == "OMDML_LOG__MEMBER"]
    assert member["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    headless = OBJECTS["Service", SETS["worker"]["spec"]["serviceName"]]
    assert headless["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("role", SETS)
def test_selectors_match_the_pods_they_are_for_and_no_others(role):
    name, wanted = f"omdml-{role}", {"app.kubernetes.io/component": f"omdml-{role}"}
    assert labels(role) == wanted
    assert SETS[role]["spec"]["selector"] == {"matchLabels": wanted}
    service = OBJECTS["Service", name]["spec"]
    assert service["selector"] == wanted
    assert [port["targetPort"] for port in service["ports"]] == [container(role)["ports"][0]["name"]]
    assert OBJECTS["PodDisruptionBudget", name]["spec"] == {
        "maxUnavailable": 1,
        # A pod that ends with code 2 or 3 at each start is never ready.
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": wanted},
    }
    policy = OBJECTS["NetworkPolicy", name]["spec"]
    assert policy["podSelector"] == {"matchLabels": wanted}
    for rule in policy["ingress"]:
        assert [port["port"] for port in rule["ports"]] == [container(role)["ports"][0]["containerPort"]]


def test_prometheus_finds_the_jobs_that_alerts_ask_for():
    # The job is the service's name. The monitor selects by labels that kustomize gives every object.
    monitor = OBJECTS["ServiceMonitor", "omdml"]["spec"]
    (given,) = OBJECTS["Kustomization", None]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= given["pairs"].items()
    assert {name for kind, name in OBJECTS if kind == "Service"} == {"omdml-worker", "omdml-node"}
    (endpoint,) = monitor["endpoints"]
    assert (endpoint["port"], endpoint["path"]) == ("http", "/metrics")


def test_the_pages_command_makes_a_rule_object_of_all_alerts():
    command, pipe, apply = block_that_begins(read("deploy/kubernetes/README.md"), "{ printf").rpartition(" | ")
    assert (pipe, apply.strip()) == (" | ", "kubectl -n shop apply -f -")
    done = subprocess.run(["bash", "-c", command], cwd=FOLDER, capture_output=True, text=True, timeout=60, check=True)
    rule = yaml.safe_load(done.stdout)
    assert (rule["apiVersion"], rule["kind"]) == (OBJECTS["ServiceMonitor", "omdml"]["apiVersion"], "PrometheusRule")
    assert rule["spec"] == RULES


def test_the_runbooks_commands_name_objects_that_there_are():
    called = operators_commands("On Kubernetes")
    namespace = "kubectl create namespace shop\n"
    assert namespace in (FOLDER / "README.md").read_text()
    commands = [command for listed in called.values() for command in listed if command.startswith("kubectl ")]
    assert all(command.startswith("kubectl -n shop ") for command in commands)
    objects = {f"{kind.lower()}/{name}" for kind, name in OBJECTS}
    for kind in ("deployment", "statefulset"):
        assert {word for command in commands for word in command.split() if word.startswith(f"{kind}/")} <= objects
    (selector,) = {word for command in commands for word in command.split() if "=omdml-" in word}
    assert dict([selector.split("=")]) == labels("worker")
    exec_, command = called["call a command"][0].split(" -- ")
    # Commands that need stopped workers run in a node's pod, which has the same settings and secrets.
    assert exec_.endswith("deployment/omdml-node")
    mounts = {role: {(each["name"], each["mountPath"]) for each in container(role)["volumeMounts"]} for role in SETS}
    assert {("settings", "/etc/omdml"), ("secrets", "/run/secrets/omdml")} <= mounts["node"] & mounts["worker"]
    program, called_command, _, file = command.split()
    assert (program, file) == ("omdml", "/etc/omdml/omdml.toml")
    assert called_command in main.commands


def test_the_runbook_goes_on_behind_a_gap_with_a_patch_that_fits_the_workers():
    lines = block_that_begins(read("deploy/RUNBOOK.md"), "kubectl -n shop patch").splitlines()
    assert all(line.startswith("kubectl -n shop ") for line in lines)
    assert [word for line in lines for word in line.split() if word.startswith("statefulset/")] == [
        "statefulset/omdml-worker"
    ] * 3
    ((operation, path, option),) = (each.values() for each in json.loads(shlex.split(lines[0])[-1]))
    # The path appends to the arguments of the only container.
    assert (operation, path) == ("add", "/spec/template/spec/containers/0/args/-")
    args = [*container("worker")["args"], option]
    with main.commands[args[0]].make_context(args[0], args[1:], resilient_parsing=True) as context:
        assert context.params["accept_gap"] is True
    (selector,) = {word for line in lines for word in line.split() if "=omdml-" in word}
    assert dict([selector.split("=")]) == labels("worker")
