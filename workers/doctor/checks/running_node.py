"""What the node of this machine says of itself, and whether it answers with more than the store has."""

from __future__ import annotations

from contextlib import closing, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

import msgspec

from omdml.workers.configuration.process import near_address
from omdml.workers.doctor.findings import Remark, warning
from omdml.workers.doctor.remarks import gathered

ASK_S = 0.3


class FellBack(msgspec.Struct, frozen=True, kw_only=True):
    """The version that a node answers with, and the older one that the store has; None if it has none."""

    serving: int
    store: int | None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The node of this machine; ``state`` is what it says of itself, empty if none answers.

    ``store_fell_back`` are the models for which the store has less than the node answers with.
    """

    address: str
    state: str
    store_fell_back: dict[str, FellBack] = {}


class Ready(msgspec.Struct, frozen=True):
    """What is used of the body of ``GET /readyz``."""

    store_fell_back: dict[str, FellBack] = {}


def node_status(bind: str) -> NodeStatus:
    """Ask the node of this machine, by the address in its configuration, whether it is ready."""
    host, port = near_address(bind)
    with closing(HTTPConnection(host.strip("[]"), port, timeout=ASK_S)) as connection, suppress(OSError, HTTPException):
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        state = "ready" if answer.status == HTTPStatus.OK else "not ready"
        fell_back: dict[str, FellBack] = {}
        # Another program may listen there.
        with suppress(msgspec.MsgspecError):
            fell_back = msgspec.json.decode(answer.read(), type=Ready).store_fell_back
        return NodeStatus(address=f"{host}:{port}", state=state, store_fell_back=fell_back)
    return NodeStatus(address=f"{host}:{port}", state="")


def node_text(node: NodeStatus) -> str:
    """How the node is, in one sentence."""
    if not node.state:
        return f"none answers at {node.address}; those of other machines are not known here"
    return f"{node.address} is {node.state}"


def running_node(node: NodeStatus) -> str | list[Remark]:
    """Whether the node answers with versions that the store does not have."""
    problems = {
        model: f"model {model}: the node at {node.address} answers with version {fell_back.serving:,}, but the store "
        f"has {'nothing of it' if fell_back.store is None else f'version {fell_back.store:,}'}: the store was emptied, "
        "replaced or restored. The node follows it again when a worker has learned as much there. If the store is to "
        "stay as it is, restart the node to follow it"
        for model, fell_back in node.store_fell_back.items()
    }
    return gathered(problems, warning) or node_text(node)
