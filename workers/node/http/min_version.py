"""Searches that name the lowest version that may answer: the node waits a little until it is live.

Two nodes swap a new version in at slightly different moments. A client whose searches go now to one, now to the other
may see version 12 and then 11; one that sends ``min_version=12`` with the second search does not.
"""

from __future__ import annotations

import asyncio
import time

from starlette.concurrency import run_in_threadpool

from omdml.workers.node.node import RetrievalNode
from omdml.workers.node.searching.options import SearchError
from omdml.workers.node.view import View

# Seconds that a node waits for the version: more than it takes to hear of a version without a hint.
WAIT_S = 2.0
LOOK_EVERY_S = 0.01


class Behind(SearchError):
    """What is live here is older than what was asked for; ``version`` is the one that answers."""

    def __init__(self, message: str, version: int) -> None:
        super().__init__(message, "behind")
        self.version = version


async def view_from(node: RetrievalNode, model: str | None, min_version: int | None) -> View:
    """What answers for a model, as soon as it has this version or a newer one.

    Raises Behind if it has not after two seconds, and SearchError as the node does.
    """
    view = await _view(node, model)
    deadline = time.monotonic() + WAIT_S
    while min_version is not None and view.snapshot.version < min_version:
        if time.monotonic() > deadline:
            raise _behind(view, min_version)
        await asyncio.sleep(LOOK_EVERY_S)
        view = await _view(node, model)
    return view


def check_version(view: View, version: int, min_version: int | None) -> None:
    """Raise Behind if a search in this view was answered by an older ``version``, whose gallery still helps out."""
    if view.origin and min_version is not None and version < min_version:
        raise Behind(
            f"model {view.snapshot.model!r}: until the gallery of version {view.snapshot.version} is embedded, version "
            f"{version} answers this search, and min_version is {min_version}: ask again, ask for fewer items at "
            "once, or ask another node",
            version,
        )


async def _view(node: RetrievalNode, model: str | None) -> View:
    return node.view(model) if node.loaded(model) else await run_in_threadpool(node.view, model)


def _behind(view: View, min_version: int) -> Behind:
    version, model = view.snapshot.version, view.snapshot.model
    hint = "ask again, or another node"
    if view.pointer.pinned:
        hint = "somebody pinned it there: ask without min_version until it is unpinned"
    return Behind(
        f"model {model!r}: version {version} is live at this node, and min_version is {min_version}: {hint}. After a "
        "reset or a rollback versions are lower on purpose",
        version,
    )
