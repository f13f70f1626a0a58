"""``python -m tests.fault.image``: a worker and a node run from the container image, are killed, and lose nothing.

``deploy/container/try.sh`` builds the image first, and prepares a machine without a container engine of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from deploy.local import KafkaServer, ValkeyServer
from deploy.local.ports import free_port
from tests.support.processes import ROOT, Process, wait_for
from tests.support.worlds import catalogue, triplets

VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
IMAGE = f"omdml:{VERSION}"
USER = 10001
# As deploy/compose/compose.yaml has it, but for the network: no bridge can be made in every sandbox.
SHUT_IN = ("--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges", "--network", "host")
WRITABLE = ("--tmpfs", "/tmp", "--tmpfs", "/var/cache/omdml:mode=1777")
EVENTS = 400


class Container:
    """A command of the image, in the foreground of a podman of its own."""

    def __init__(self, folder: Path, name: str, port: int) -> None:
        self.folder, self.port = folder, port
        self.role, self.name = name, f"omdml-try-{name}-{port}"
        self.start()

    def start(self) -> None:
        """Run it; its output goes to ``NAME.log``."""
        mounts = ("-v", f"{self.folder}/omdml.toml:/etc/omdml/omdml.toml:ro", "-v", f"{self.folder}/items:/items:ro")
        health = ("-e", f"HEALTH_URL=http://127.0.0.1:{self.port}/healthz")
        command = [
            "podman",
            "run",
            "--rm",
            "--pull",
            "never",
            "--name",
            self.name,
            *SHUT_IN,
            *WRITABLE,
            *mounts,
            *health,
        ]
        with (self.folder / f"{self.role}.log").open("ab") as output:
            self._podman = subprocess.Popen(
                [*command, IMAGE, self.role, "--config", "/etc/omdml/omdml.toml"], stdout=output, stderr=output
            )
        wait_for(self.ready, f"{self.role} to be ready: see {output.name}", 120)

    def ready(self) -> bool:
        """Whether ``/readyz`` says that the container is ready."""
        assert self._podman.poll() is None, (self.folder / f"{self.role}.log").read_text()[-2000:]
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=10).status_code == 200
        except httpx.TransportError:
            return False

    def end(self, signal: str) -> int:
        """Send a signal; answers the exit code."""
        podman("kill", "--signal", signal, self.name)
        return self._podman.wait(60)

    def close(self) -> None:
        """Kill the container if it is still running."""
        if self._podman.poll() is None:
            self.end("KILL")

    def check_confined(self) -> None:
        """Fail unless the process is what the documents promise: another user, without rights, on a read-only root."""
        pid = int(podman("inspect", "--format", "{{.State.Pid}}", self.name))
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert set(status["Uid"].split()) == {str(USER)}, status["Uid"]
        assert (int(status["CapEff"], 16), status["NoNewPrivs"]) == (0, "1")
        write = "open('/opt/omdml/new', 'w')"
        refused = subprocess.run(
            ["podman", "exec", self.name, "python", "-c", write], capture_output=True, text=True, check=False
        )
        assert refused.returncode == 1, refused
        assert "Read-only file system" in refused.stderr, refused.stderr
        podman("healthcheck", "run", self.name)


def podman(*arguments: str) -> str:
    """What podman answers; raises if it fails."""
    done = subprocess.run(["podman", *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"podman {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


@contextmanager
def service(folder: Path) -> Iterator[tuple[Container, Container]]:
    """A worker and a node from the image, on a real Kafka and Valkey."""
    ports = {"worker": free_port(), "node": free_port()}
    with KafkaServer() as kafka, ValkeyServer() as valkey, ExitStack() as stack:
        kafka.create_topic("feedback", partitions=2)
        sections = {
            "log": {"kind": "kafka", "servers": kafka.servers, "member": "worker-1"},
            "store": {"url": valkey.url},
            "catalogues.items": {"path": "/items"},
            "models.shop": {"learner": "lomdml", "coordinates": "features", "rank": 3},
            **{role: {"bind": f"127.0.0.1:{port}"} for role, port in ports.items()},
        }
        lines = (f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in options.items())
                 for name, options in sections.items())  # fmt: skip
        text = "".join(lines)
        (folder / "omdml.toml").write_text(text)
        (folder / "host.toml").write_text(text.replace('"/items"', f'"{folder}/items"'))
        catalogue(folder / "items")
        containers = [Container(folder, role, port) for role, port in ports.items()]
        for container in containers:
            stack.callback(container.close)
        yield containers[0], containers[1]


def click(node: Container, count: int) -> None:
    """Send ``count`` clicks to the node."""
    lines = (
        json.dumps({"type": "triplet", "model": "shop", "query": f"i{q}", "relevant": f"i{r}", "irrelevant": f"i{s}"})
        for q, r, s in triplets(count).tolist()
    )
    headers = {"Content-Type": "application/x-ndjson"}
    url = f"http://127.0.0.1:{node.port}/feedback"
    sent = httpx.post(url, content="\n".join(lines), headers=headers, timeout=60)
    assert sent.status_code in (200, 202), sent.text


def version(node: Container) -> int:
    """The version that the node answers with."""
    answer = httpx.get(f"http://127.0.0.1:{node.port}/search?model=shop&id=i1", timeout=10)
    return int(answer.json().get("version", 0))


def main() -> int:
    """Print each check that held; the first one that does not ends the program."""
    with tempfile.TemporaryDirectory() as name, service(Path(name)) as (worker, node):
        folder = Path(name)
        folder.chmod(0o755)
        for container in (worker, node):
            container.check_confined()
        print(f"worker and node run as user {USER}, without capabilities, on a read-only root, and are healthy")
        click(node, EVENTS)
        wait_for(lambda: version(node) > EVENTS // 2, "clicks to be live", 120)
        print(f"{version(node)} clicks are live")
        for container in (worker, node):
            assert container.end("KILL") == 137
        worker.start()
        node.start()
        before = version(node)
        click(node, EVENTS)
        wait_for(lambda: version(node) > before + EVENTS // 2, "clicks after the kill to be live", 120)
        print(f"killed and started again: {version(node)} clicks are live")
        audited = audit(folder)
        wait_for(lambda: audit(folder).endswith("no error"), f"an audit without an error, not {audited}", 60)
        print(f"of {2 * EVENTS} events each was learned once or held out: omdml doctor --audit finds no error")
        assert [worker.end("TERM"), node.end("TERM")] == [0, 0]
        print("both ended with 0 on SIGTERM")
    return 0


def audit(folder: Path) -> str:
    """What ``omdml doctor --audit`` says, and whether it found an error."""
    doctor = Process(folder, "doctor", "--audit", "--config", str(folder / "host.toml"), name="doctor")
    code = doctor.wait(60)
    return doctor.said[-2000:] + ("no error" if code == 0 else f"exit code {code}")


if __name__ == "__main__":
    sys.exit(main())
