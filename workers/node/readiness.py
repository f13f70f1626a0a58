"""What a node says about its models: ``GET /models`` and ``GET /readyz``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omdml.workers.node.configured_models import ConfiguredModels
from omdml.workers.node.following.first_views import FirstViews
from omdml.workers.node.following.live_pointers import Refresher
from omdml.workers.node.galleries.candidates import CandidateIndex
from omdml.workers.node.view import View


class Readiness:
    """Which models of a node can answer, with which version, and what keeps the others from it.

    Parameters
    ----------
    ready
        ``all`` if the node is ready once every named model can answer, ``any`` if one is enough.
    first
        What answers for models of which the store has nothing. None means that nothing answers for them.
    parent
        The name of a model's parent; empty if it has none.
    candidates
        The indexes in vector databases that propose candidates, by model.
    freshness
        How fresh the answers of a model, by its name in metrics, have been since a time.
    """

    def __init__(
        self,
        models: ConfiguredModels,
        ready: str,
        refresher: Refresher,
        first: FirstViews | None,
        parent: Callable[[str], str],
        candidates: Mapping[str, CandidateIndex],
        freshness: Callable[[str, float], Mapping[str, Any] | None],
    ) -> None:
        self._models, self._ready, self._refresher = models, ready, refresher
        self._first, self._parent = first, parent
        self._candidates, self._freshness = candidates, freshness

    def missing(self) -> list[str]:
        """Models configured by name that cannot answer yet."""
        views = self._refresher.live.views
        return [
            name
            for name in self._models.named
            if (name not in views and not self._begins(name)) or not self._has_candidates(name)
        ]

    def awaited(self) -> list[str]:
        """Models that cannot answer yet and without which this node is not ready."""
        missing = self.missing()
        return [] if self._ready == "any" and len(missing) < len(self._models.named) else missing

    def instead(self) -> dict[str, dict[str, Any]]:
        """Models whose live version cannot be served: what answers instead, None if nothing does, and why."""
        views = dict(self._refresher.live.views)
        return {
            model: {
                "live": refusal.version,
                "serving": views[model].snapshot.version if model in views else None,
                "reason": refusal.reason,
            }
            for model, refusal in dict(self._refresher.refused).items()
        }

    def fell_back(self) -> dict[str, dict[str, int | None]]:
        """Models for which the store is behind: the version it has, None if it has none, and the one that answers."""
        fell_back, views = self._refresher.fell_back(), dict(self._refresher.live.views)
        return {
            model: {"store": version, "serving": views[model].snapshot.version}
            for model, version in fell_back.items()
            if model in views
        }

    def describe(self, since: float = 0.0) -> list[dict[str, Any]]:
        """Each model configured by name or loaded: what answers, since when, how fresh it was after ``since``."""
        views, instead, fell_back = dict(self._refresher.live.views), self.instead(), self.fell_back()
        descriptions = []
        for name in dict.fromkeys([*self._models.named, *sorted(views)]):
            view = views.get(name) or self._beginning(name)
            freshness = self._freshness(self._models.label(name), since) if view else None
            description = status_of(name, view, freshness, self._parent(name), self._candidates.get(name))
            refused = {"refused": instead[name]} if name in instead else {}
            fallen = {"store_fell_back": fell_back[name]} if name in fell_back else {}
            descriptions.append({**description, **refused, **fallen})
        return descriptions

    def _has_candidates(self, name: str) -> bool:
        """Whether a model needs no index, or its index could be read once."""
        return name not in self._candidates or self._candidates[name].read

    def _begins(self, name: str) -> bool:
        """Whether a named model answers with its start, because none of its versions was published."""
        return self._first is not None and name in self._first.ready

    def _beginning(self, name: str) -> View | None:
        """The view that answers for a named model before any of its versions is published."""
        return self._first.view(name) if self._first and self._begins(name) else None


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
    """The index that candidates come from, the version that it holds, and if it cannot be read now, why."""
    return {"index": str(index), "version": index.version, **({"away": index.away} if index.away else {})}
