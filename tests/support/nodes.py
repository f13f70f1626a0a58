"""Real nodes that follow the folder store of a :class:`tests.support.shops.Shop`."""

from __future__ import annotations

from pathlib import Path

from streams.stores.folder.store import DirectoryStore
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
    return Process(folder, "node", "--config", f"{name}.toml", name=name), port
