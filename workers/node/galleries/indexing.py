"""Approximate indexes of views: whether one is due, and a view that has one."""

from __future__ import annotations

from dataclasses import replace

from omdml.retrieval import cells
from omdml.workers.node.galleries.gallery import Gallery, Index
from omdml.workers.node.galleries.two_stage import TwoStageGallery
from omdml.workers.node.view import View

# If this share of a gallery's rows came after its approximate index was made, the index is made again.
OUTSIDE = 0.05


def is_approximate(view: View) -> bool:
    """Whether an approximate index answers, directly or over a bridge, or candidates are ranked again."""
    if view.two_stage or view.reranked:
        return True
    indexes = view.complete.indexes.values()
    return any(isinstance(index, Gallery) and index.cells is not None for index in indexes)


def is_index_due(view: View) -> bool:
    """Whether a gallery is so large that an approximate index pays, and has none or one that lacks many rows."""
    galleries = [index for index in view.complete.indexes.values() if isinstance(index, Gallery)]
    return view.count >= cells.LEAST_ROWS and any(index.outside > OUTSIDE * view.count for index in galleries)


def with_cells(view: View) -> View:
    """The view with an approximate index of each gallery."""
    galleries = {id(index): index for index in view.indexes.values() if isinstance(index, Gallery)}
    indexed: dict[int, Index | TwoStageGallery] = {place: index.with_cells() for place, index in galleries.items()}
    return replace(view, indexes={task: indexed.get(id(index), index) for task, index in view.indexes.items()})
