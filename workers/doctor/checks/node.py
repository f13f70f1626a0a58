"""How the node of this machine is, as it says itself."""

from __future__ import annotations

from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

import msgspec

from omdml.workers.configuration.access import check_reach
from omdml.workers.configuration.config import NodeConfig
from omdml.workers.configuration.process import address, near_address
from omdml.workers.configuration.wording import STORE_FELL_BACK
from omdml.workers.doctor.findings import Remark, error, warning
from omdml.workers.doctor.remarks import gathered

# Seconds. A node that answers nothing for longer hangs, or its machine is far too busy.
PATIENCE_S = 5.0
MOST_BYTES = 1 << 20


class FellBack(msgspec.Struct, frozen=True, kw_only=True):
    """The version that a node answers with, and the older one that the store has; None if it has none."""

    serving: int
    store: int | None


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The node of this machine.

    ``state`` is what it says of itself: ``ready``, ``not ready``, ``silent`` if it accepts a connection and does not
    answer, ``no node`` if another program answers; empty if nothing listens. ``text`` says more about it.
    ``store_fell_back`` are the models for which the store has less than the node answers with.
    """

    address: str
    state: str
    text: str = ""
    store_fell_back: dict[str, FellBack] = {}


def node_status(bind: str, patience_s: float) -> NodeStatus:
    """Ask the node of this machine, by the address in its configuration, whether it is ready."""
    host, port = near_address(bind)
    host_and_port = f"{host}:{port}"
    with closing(HTTPConnection(host.strip("[]"), port, timeout=patience_s)) as connection:
        try:
            connection.connect()
        except OSError:
            return NodeStatus(address=host_and_port, state="")
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            body = msgspec.json.decode(answer.read(MOST_BYTES), type=dict[str, Any])
        except TimeoutError:
            remark = f"accepts connections and answered nothing for {patience_s:g} s"
            return NodeStatus(address=host_and_port, state="silent", text=remark)
        except (OSError, HTTPException, msgspec.DecodeError):
            return NodeStatus(address=host_and_port, state="no node")
    if answer.status == HTTPStatus.OK and body.get("status") == "ready":
        fell_back = msgspec.convert(body.get("store_fell_back") or {}, dict[str, FellBack])
        remark = refused_in_words(body.get("refused") or {})
        return NodeStatus(address=host_and_port, state="ready", text=remark, store_fell_back=fell_back)
    if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
        return NodeStatus(address=host_and_port, state="not ready", text=str(body.get("message", "")))
    return NodeStatus(address=host_and_port, state="no node")


def refused_in_words(refused: dict[str, dict[str, Any]]) -> str:
    """The models of which a node cannot serve the live version, with what it answers instead."""
    return "; ".join(
        f"model {name}: it answers with {what_answers(refusal['serving'], refusal['live'])} ({refusal['reason']})"
        for name, refusal in refused.items()
    )


def what_answers(serving: int | None, live: int) -> str:
    """What a node answers with in the place of a live version that it cannot serve."""
    if serving == live:
        # A worker publishes a version again if the catalogue was built again.
        return f"an earlier snapshot of the live version, {live:,}"
    return ("nothing" if serving is None else f"version {serving:,}") + f" in the place of the live one, {live:,}"


def ahead_of_store(node: NodeStatus) -> dict[str, str]:
    """A sentence about each model for which the store has less than the node answers with."""
    return {
        model: f"model {model}: the node at {node.address} answers with version {fell_back.serving:,}, but the store "
        f"has {'nothing of it' if fell_back.store is None else f'version {fell_back.store:,}'}: {STORE_FELL_BACK}"
        for model, fell_back in node.store_fell_back.items()
    }


def access(node: NodeConfig) -> str:
    """Where a node listens, and who may send it feedback; raises ConfigurationError if too many may."""
    host, port = address(node.bind, "node.bind")
    check_reach(host, node.access)
    return f"{host}:{port}, {'feedback needs a token' if node.access else 'for this machine only'}"


def node_here(node: NodeConfig) -> str | list[Remark]:
    """How the node of this machine is. If none runs here, all is well: it may be on another machine."""
    config = f"node.bind: {access(node)}"
    status = node_status(node.bind, PATIENCE_S)
    if status.state == "ready":
        ready = f"the node at {status.address} is ready ({config})"
        refused = [warning(f"{ready}, but {status.text}")] if status.text else []
        return [*refused, *gathered(ahead_of_store(status), warning)] or ready
    if status.state == "not ready":
        return [error(f"the node at {status.address} is not ready: {status.text}. See what serving and checkpoints "
                      "above say, and whether a worker runs")]  # fmt: skip
    if status.state == "silent":
        return [error(f"what listens at {status.address} {status.text}: the node hangs or its machine has no processor "
                      "left for it. Read its log, then restart it")]  # fmt: skip
    if status.state:
        return [warning(f"another program than a node answers at {status.address}: stop it, or set node.bind to "
                        "another port")]  # fmt: skip
    return f"none runs at {status.address} (nodes on other machines are not asked; {config})"
