"""What a node says about its models: ``GET /models`` and ``GET /readyz``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omdml.workers.node.following.hot_swap import Refusal
from omdml.workers.node.galleries.candidates import CandidateIndex
from omdml.workers.node.live_model import View


def status_of(
    model: str,
    view: View | None,
    freshness: Mapping[str, Any] | None,
    begins_with: str,
    candidates: CandidateIndex | None = None,
) -> dict[str, Any]:
    """One model: what answers, since when, and how fresh it is. ``begins_with`` is its parent by configuration."""
    index = {"candidates": status_of_index(candidates)} if candidates else {}
    if view is None:
        return {"model": model, "ready": False, **index}
    return {
        "model": model,
        "ready": candidates is None or candidates.read,
        "version": view.snapshot.version,
        "serial": view.pointer.serial,
        "pinned": view.pointer.pinned,
        "learner": view.snapshot.learner,
        "generation": view.snapshot.generation,
        "items": view.shown.items,
        "tasks": list(view.snapshot.metric.tasks),
        "live_since": view.made_at,
        "complete": view.origin is None,
        "freshness": freshness,
        **({"parent": view.parent.model} if view.parent else {}),
        **({"begins_with": begins_with} if begins_with else {}),
        **index,
    }


def status_of_index(index: CandidateIndex) -> dict[str, Any]:
    """The index that candidates come from, the version that it holds, and why it cannot be read now, if so."""
    return {"index": str(index), "version": index.version, **({"away": index.away} if index.away else {})}


def served_instead(refused: Mapping[str, Refusal], views: Mapping[str, View]) -> dict[str, dict[str, Any]]:
    """Models whose live version cannot be served: the version that answers instead (None if none does), and why."""
    return {
        model: {
            "live": refusal.version,
            "serving": views[model].snapshot.version if model in views else None,
            "reason": refusal.reason,
        }
        for model, refusal in refused.items()
    }


def fallen_behind(fell_back: Mapping[str, int | None], views: Mapping[str, View]) -> dict[str, dict[str, int | None]]:
    """The version that the store has of each model that it is behind with (None: none), and the one that answers."""
    return {
        model: {"store": version, "serving": views[model].snapshot.version}
        for model, version in fell_back.items()
        if model in views
    }
