"""Filters of searches by attributes, and the attributes that answers show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from omdml.workers.node.attributes.index_filters import pushed_down
from omdml.workers.node.attributes.layers import ChangedAttributes, Layers
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.galleries.gallery import Query
from omdml.workers.node.searching.answers import Answers
from omdml.workers.node.searching.options import SearchError
from omdml.workers.node.view import View

# The attribute that says what people call an item.
LABEL = "label"


class SearchAttributes:
    """The attributes of the items that views search in. Any number of threads may ask.

    Parameters
    ----------
    filed
        The attributes that a file gives a model's items; None if the model has no file.
    """

    def __init__(self, filed: Callable[[str], Attributes | None]) -> None:
        self._filed, self._changed = filed, ChangedAttributes()

    def filtered(self, view: View, query: Query, asked: Mapping[str, Any]) -> Query:
        """The query among the items that match a filter; raises SearchError."""
        if view.names is not view.catalogue.ids:
            raise SearchError(
                "filter: this model answers with sets, which have no attributes: search without a filter", "bad_filter"
            )
        layers = self._of(view)
        among = layers.mask(asked, view.catalogue, view.count)
        if len(outdated := view.outdated):
            # The view still answers with these rows, but the catalogue finds only the newest row of an item. So they
            # are filtered by the newest attributes of their ids.
            names = [view.catalogue.ids[row] for row in outdated.tolist()]
            newest = Attributes.of_items(zip(names, layers.of(names, layers.columns), strict=True))
            among = among.copy()
            among[outdated] = newest.own_mask(asked, layers.columns) & (view.catalogue.rows(names) >= 0)
        return query._replace(among=among, pushed=pushed_down(asked, layers.columns) if view.two_stage else None)

    def with_fields(self, view: View, answers: Answers, fields: Sequence[str]) -> Answers:
        """The answers with these attributes of each item; raises SearchError."""
        layers, lists = self._of(view), []
        for items in answers.answers:
            attributes_of = layers.of([item.id for item in items], fields)
            pairs = zip(items, attributes_of, strict=True)
            lists.append([msgspec.structs.replace(item, attributes=attributes) for item, attributes in pairs])
        return msgspec.structs.replace(answers, answers=lists)

    def names(self, view: View) -> list[str]:
        """The names of the attributes that answers can show."""
        layers = self._layers(view)
        return list(layers.columns) if layers else []

    def values(self, view: View, items: Sequence[str], fields: Sequence[str]) -> list[dict[str, Any]]:
        """These attributes of each item, as far as it has them, or all if no field is named; raises SearchError."""
        if fields:
            return self._of(view).of(items, fields)
        layers = self._layers(view)
        return layers.of(items, layers.columns) if layers else [{} for _ in items]

    def labels(self, view: View, items: Sequence[str]) -> list[str | None] | None:
        """The label of each item; None if no item of the view has one."""
        layers = self._layers(view)
        if layers is None or LABEL not in layers.columns:
            return None
        return [str(attributes[LABEL]) if attributes else None for attributes in layers.of(items, [LABEL])]

    def _layers(self, view: View) -> Layers | None:
        return self._changed.over(self._filed(view.snapshot.model), view.catalogue)

    def _of(self, view: View) -> Layers:
        layers = self._layers(view)
        if layers is None:
            model = view.snapshot.model
            message = (
                f"the items of model {model!r} have no attributes on this node: set catalogues.NAME.attributes, or put "
                "items with attributes"
            )
            raise SearchError(message, "no_attributes")
        return layers
