"""Nodes for tests: what they serve and count, and real ones that follow a :class:`tests.support.shops.Shop`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry

from omdml.streams.protocols.store import Pointer
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.node.following.hot_swap import LiveViews
from omdml.workers.node.following.live_pointers import Refresher
from omdml.workers.node.metrics import NodeMetrics
from tests.support.forks import ForkedProcess
from tests.support.processes import Process, free_port
from tests.support.shops import Shop

CONFIGURATION = """
[log]
path = "feedback"
[store]
url = "dir:state"
[catalogues.items]
path = "items"
[models.shop]
learner = "lomdml"
[node]
bind = "127.0.0.1:{port}"
"""


def stored_shop(folder: Path) -> Shop:
    """A shop whose first version is live in a folder store."""
    shop = Shop(folder, store=DirectoryStore(str(folder / "state")))
    shop.publish()
    return shop


def start_node(folder: Path, name: str = "omdml") -> tuple[Process, int]:
    """A node of the shop in this folder, and its port; it is not ready yet."""
    port = free_port()
    (folder / f"{name}.toml").write_text(CONFIGURATION.format(port=port))
    return ForkedProcess(folder, "node", "--config", f"{name}.toml", name=name), port


def refresher(shop, patience_s=60.0, registry=None):
    """A refresher of one node's views. With ``patience_s`` 0 it bridges to each new metric and embeds it later."""
    metrics = NodeMetrics(registry or CollectorRegistry())
    return Refresher(shop.store, LiveViews(lambda model: shop.catalogue, metrics, str, patience_s), metrics)


def metric_value(node, name, **labels):
    """A sample of the node's Prometheus metrics."""
    return node.metrics.registry.get_sample_value(f"omdml_node_{name}", labels)


def serves(node, version, model="shop"):
    """A condition: the node answers with this version."""
    return lambda: node.view(model).snapshot.version == version


def assert_exact(shop, answer, item, k=10):
    """Check an answer by brute force, under the version that it names."""
    ids, distances = shop.expected(answer.version, item, k)
    assert [item.id for item in answer.items] == ids
    assert np.allclose([item.distance for item in answer.items], distances, rtol=1e-4, atol=1e-6)


def pointer(serial, version, store="a", pinned=False, epoch="1-x"):
    """A pointer to a version, of a store of this name."""
    return Pointer(serial, version, "", epoch, 0.0, pinned, store)
