"""Makes views: of a new snapshot with its gallery embedded or that of an older one, or with rows that were added."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from omdml.errors import CatalogueError
from omdml.metrics import CosineMetric, Metric, ProjectionMetric, SetMetric
from omdml.metrics.cosine import UnitVectors
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import Pointer
from omdml.workers.configuration.wording import learn_again
from omdml.workers.node.galleries.bridge import Bridge, Spread
from omdml.workers.node.galleries.candidates import CandidateIndex
from omdml.workers.node.galleries.gallery import PROBES, Features, Gallery, Index, ScoredGallery
from omdml.workers.node.galleries.reranking import LEAST_ROWS, Reranking
from omdml.workers.node.galleries.set_gallery import SetGallery
from omdml.workers.node.galleries.two_stage import TwoStageGallery
from omdml.workers.node.view import SetView, View

# An embedding that takes longer is made in the background, behind a bridge or candidates that are ranked again.
PATIENCE_S = 0.02
# A gallery of at most UNIT_NUMBERS numbers (16 MB of float32) keeps unit vectors if its version comes within SOON_S
# seconds after the one before. A larger gallery is rarely embedded: while its model learns, an earlier one answers.
UNIT_NUMBERS, SOON_S = 4_000_000, 1.0


def embedded_view(
    pointer: Pointer,
    snapshot: Snapshot,
    catalogue: Catalogue,
    before: View | None = None,
    patience_s: float = PATIENCE_S,
    candidates: CandidateIndex | None = None,
) -> View:
    """A view with the whole gallery embedded; later ones can start from it if that takes longer than ``patience_s``.

    If ``candidates`` come from an index, nothing is embedded.

    Raises
    ------
    CatalogueError
        The snapshot was learned on other items than the catalogue's, or its metric cannot answer from candidates.
    CorruptError
        The metric makes no finite embedding of them.
    """
    check_fit(snapshot, catalogue)
    if before and same_metric(before.complete.snapshot.metric, snapshot.metric):
        grown = grown_view(before.complete, catalogue)
        if grown:
            return replace(grown, pointer=pointer, snapshot=snapshot, made_at=time.time())
    began = time.perf_counter()
    metric, sets, shown = snapshot.metric, catalogue.sets, catalogue.shown
    count = shown.rows
    if candidates:
        check_candidates(snapshot)
        two_stage = TwoStageGallery(metric, catalogue, count, candidates)
        return View(pointer, snapshot, catalogue, shown, {None: two_stage}, time.time())
    features = {name: catalogue.features[name][:count] for name in metric.dims}
    if isinstance(metric, SetMetric):
        members = list(sets.values()) or list(np.arange(count)[:, None])
        gallery = SetGallery(metric, features, members)
        return SetView(pointer, snapshot, catalogue, shown, {None: gallery}, time.time(), sets=sets)
    same = {task: metric.same_as(task) for task in (None, *metric.tasks)}
    units = unit_vectors(metric, features, catalogue, before.complete) if before else None
    galleries = {
        task: Gallery(metric, features, task, units) if metric.euclidean else ScoredGallery(metric, features, task)
        for task in dict.fromkeys(same.values())
    }
    indexes = {task: galleries[own] for task, own in same.items()}
    slow, spread = time.perf_counter() - began > patience_s, None
    if slow and isinstance(metric, ProjectionMetric):
        spread = spread_of(features, catalogue, before)
    return View(pointer, snapshot, catalogue, shown, indexes, time.time(), spread, slow=slow)


def unit_vectors(metric: Metric, features: Features, catalogue: Catalogue, before: View) -> UnitVectors | None:
    """The experts' unit vectors of the items, kept for the next version; None if they are not worth their memory.

    If the complete view ``before`` holds the same items, the vectors of unchanged experts are taken from it.
    """
    count = len(next(iter(features.values())))
    if not isinstance(metric, CosineMetric) or count * metric.size > UNIT_NUMBERS:
        return None
    if time.time() - before.made_at > SOON_S:
        return None
    gallery, same = before.indexes[None], before.catalogue is catalogue and before.count == count
    return UnitVectors(metric, features, gallery.units if same and isinstance(gallery, Gallery) else None)


def grown_view(view: View, catalogue: Catalogue) -> View | None:
    """The view of what the catalogue holds now; None if it must be made again.

    Rows are only ever added, so those that are searched in stay as they are, and the new ones are embedded. The numbers
    are those of a view that is made again, up to the last digits of float32: a product of few rows is summed in another
    order than one of many.
    """
    shown = catalogue.shown
    if view.covers(catalogue):
        return view
    if view.catalogue is not catalogue or isinstance(view, SetView) or shown.rows < view.count:
        return None
    origin = None
    if view.origin is not None:
        origin = grown_view(view.origin, catalogue)
        if origin is None:
            return None
        # It looked at the catalogue later, and may hold more.
        shown = origin.shown
    if shown.rows == view.count:
        return replace(view, shown=shown, origin=origin)
    features = {name: catalogue.features[name][: shown.rows] for name in view.snapshot.metric.dims}
    spread = view.spread
    if spread is not None:
        spread = origin.spread if origin is not None else spread.grown(features)
    shared = {id(index): index for index in view.indexes.values()}
    made = {place: grown_index(index, features, shown.rows, origin, spread) for place, index in shared.items()}
    indexes = {task: made[id(index)] for task, index in view.indexes.items()}
    return replace(view, shown=shown, indexes=indexes, spread=spread, origin=origin)


def grown_index(
    index: Index | TwoStageGallery, features: Features, rows: int, origin: View | None, spread: Spread | None
) -> Index | TwoStageGallery:
    """The index with the new rows among these ``rows`` added; the first ones are those that it has.

    A bridge, and candidates that are ranked again, answer from the gallery of ``origin``.
    """
    if isinstance(index, TwoStageGallery):
        return index.grown(rows)
    if isinstance(index, Gallery | ScoredGallery):
        return index.grown(features)
    assert origin is not None
    gallery = origin.indexes[index.task if isinstance(index, Reranking) else None]
    assert isinstance(gallery, Gallery)
    if isinstance(index, Reranking):
        return index.grown(gallery, features)
    assert isinstance(index, Bridge)
    assert spread is not None
    return index.grown(gallery, features, spread)


def same_metric(metric: Metric, other: Metric) -> bool:
    """Whether two metrics are the same numbers: some learners learn many events before they change what is served."""
    (tensors, _), (others, _) = metric.to_tensors(), other.to_tensors()
    same = metric.kind == other.kind and list(tensors) == list(others)
    return same and all(np.array_equal(tensor, others[name]) for name, tensor in tensors.items())


def spread_of(features: Features, catalogue: Catalogue, before: View | None) -> Spread:
    """The spread of these items; that of the view before if the items are the same."""
    if before and before.spread and before.catalogue is catalogue:
        known = before.spread
        if known.names == tuple(features) and len(known.distances) == len(next(iter(features.values()))):
            return known
    return Spread(features)


def bridged_view(origin: View, pointer: Pointer, snapshot: Snapshot, catalogue: Catalogue) -> View | None:
    """A view of a new snapshot over the gallery of a complete ``origin``; None if no bridge leads there, or holds."""
    grown = grown_view(origin, catalogue) if origin.spread is not None else None
    if grown is None or grown.spread is None:
        return None
    origin = grown
    gallery, old, new = origin.indexes[None], origin.snapshot.metric, snapshot.metric
    if not (isinstance(gallery, Gallery) and isinstance(old, ProjectionMetric) and isinstance(new, ProjectionMetric)):
        return None
    if shapes(old) != shapes(new):
        return None
    check_fit(snapshot, catalogue)
    features = {name: catalogue.features[name][: origin.count] for name in new.dims}
    bridge = Bridge(gallery, old, new, features, grown.spread)
    if not bridge.holds():
        return None
    return View(pointer, snapshot, catalogue, origin.shown, {None: bridge}, time.time(), origin.spread, origin)


def reranked_view(origin: View, pointer: Pointer, snapshot: Snapshot, catalogue: Catalogue) -> View | None:
    """A view of a new snapshot that ranks candidates of a complete ``origin`` again; None if these will not do."""
    grown, metric = grown_view(origin, catalogue) if origin.slow else None, snapshot.metric
    if grown is None or not metric.euclidean or origin.indexes.keys() != {None, *metric.tasks}:
        return None
    check_fit(snapshot, catalogue)
    features = {name: catalogue.features[name][: grown.count] for name in metric.dims}
    same, indexes = {task: metric.same_as(task) for task in origin.indexes}, {}
    for task in dict.fromkeys(same.values()):
        gallery = grown.indexes[task]
        if not isinstance(gallery, Gallery):
            return None
        indexes[task] = Reranking(gallery, metric, features, grown.snapshot.version, task)
        if not indexes[task].holds():
            return None
    made = {task: indexes[own] for task, own in same.items()}
    return View(pointer, snapshot, catalogue, grown.shown, made, time.time(), grown.spread, grown)


def prepare_trials(view: View) -> None:
    """Choose the candidates on which later metrics are tried, if no bridge can start from this view.

    This is done now, so that the next version does not wait for it.
    """
    for index in view.indexes.values():
        if view.slow and view.spread is None and view.count >= LEAST_ROWS and isinstance(index, Gallery):
            for number in range(PROBES):
                index.probe(number)


def shapes(metric: ProjectionMetric) -> dict[str, tuple[int, ...]]:
    """The shape (r, d) of each modality's projection."""
    return {name: matrix.shape for name, matrix in metric.matrices.items()}


def check_candidates(snapshot: Snapshot) -> None:
    """Raise CatalogueError if a metric cannot answer from the candidates of an index."""
    if not snapshot.metric.euclidean or snapshot.metric.tasks:
        raise CatalogueError(
            f"snapshot of model {snapshot.model!r}, version {snapshot.version}: a {snapshot.metric.kind} metric with "
            f"{len(snapshot.metric.tasks)} tasks cannot answer from candidates of an index: remove candidates"
        )


def check_fit(snapshot: Snapshot, catalogue: Catalogue) -> None:
    """Raise CatalogueError if a snapshot was not learned on this catalogue."""
    where = f"snapshot of model {snapshot.model!r}, version {snapshot.version}"
    if snapshot.generation != catalogue.generation:
        raise CatalogueError(
            f"{where}: learned on catalogue generation {snapshot.generation!r}, this node has "
            f"{catalogue.generation!r}. Give both the same catalogue, and restart the node if it was built again"
        )
    dims: dict[str, Any] = dict(snapshot.metric.dims)
    if wrong := {name: dim for name, dim in dims.items() if catalogue.dims.get(name) != dim}:
        raise CatalogueError(
            f"{where}: learned on dimensions {wrong}, the catalogue has {dict(catalogue.dims)}. Give worker and node "
            f"the same catalogue. If it was built again with other dimensions, {learn_again(snapshot.model)}"
        )
