"""A router runs under a real systemd, as its unit says, and copies what a real Kafka holds."""

from __future__ import annotations

import httpx
import pytest

from deploy.local.ports import free_port
from tests.deploy.conftest import systemd  # noqa: F401
from tests.support.servers.booted import Booted, CannotBoot
from tests.support.servers.routes import Route
from tests.support.waiting import until

UNIT = "omdml-route@1.service"


@pytest.fixture
def route(tmp_path, kafka, new_topic):
    with Route(tmp_path, kafka, new_topic) as route:
        yield route


@pytest.fixture
def machine(systemd, tmp_path):  # noqa: F811
    try:
        with Booted(systemd, tmp_path / "machine") as booted:
            yield booted
    except CannotBoot as error:
        pytest.skip(f"no systemd can be started here, so the unit was not run: {error}")


@pytest.mark.deep
def test_a_routers_unit_starts_routes_comes_back_after_a_kill_and_stops(machine, route):
    port = free_port()
    (machine.place / "etc/omdml/omdml.toml").write_text((route.folder / "omdml.toml").read_text())
    environment = f"OMDML_LOG__MEMBER=one\nROUTE_FROM={route.origin}\nROUTE_BIND=127.0.0.1:{port}\n"
    (machine.place / "etc/omdml/route-1.env").write_text(environment)
    route.send(50)
    assert machine.ask("start", UNIT) == "", machine.said(UNIT)
    until(lambda: httpx.get(f"http://127.0.0.1:{port}/readyz", verify=False).status_code == 200, 60)
    route.wait()
    assert machine.show(UNIT, "ActiveState", "StatusText") == ["active", f"routing into {route.target}"]
    # After a kill it is started again, and goes on where it was.
    machine.ask("kill", "--signal=KILL", UNIT)
    route.send(50)
    until(lambda: machine.show(UNIT, "NRestarts", "ActiveState") == ["1", "active"], 60)
    route.wait()
    route.check()
    assert machine.ask("stop", UNIT) == ""
    assert machine.show(UNIT, "Result", "ExecMainStatus", "ActiveState") == ["success", "0", "inactive"]
