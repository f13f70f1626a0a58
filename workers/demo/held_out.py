"""What answers are worth, measured on queries that nobody searched for or marked."""

from __future__ import annotations

import numpy as np

from omdml.errors import MeasureError
from omdml.evaluate import average_precision
from workers.demo.labels import Labels
from workers.demo.node_client import NodeClient

PAGE = 10


class HeldOut:
    """The held-out queries, asked of a node.

    Raises
    ------
    NodeError
        From every measure: the node does not answer.
    """

    def __init__(self, client: NodeClient, model: str, labels: Labels) -> None:
        self._client, self._model, self._labels = client, model, labels

    def mean_average_precision(self) -> float:
        """MAP over the full ranking of all labelled items; raises MeasureError where the node ranks fewer."""
        count = len(self._labels) - 1
        ranked = [self._relevance(query, count) for query in self._labels.held_out]
        shortest = min(map(len, ranked))
        if shortest < count:
            raise MeasureError(
                f"the node ranks {shortest} items, {count} are labelled: mAP needs all of them in its catalogue"
            )
        return float(np.mean([average_precision(relevance) for relevance in ranked]))

    def precision(self) -> float:
        """Mean share of relevant items among the first ten."""
        return float(np.mean([np.mean(self._relevance(query, PAGE)) for query in self._labels.held_out]))

    def _relevance(self, query: str, k: int) -> list[bool]:
        """Of the items in the answer, closest first; those without a label are relevant to nobody."""
        label, of = self._labels.of[query], self._labels.of
        return [of.get(found.id) == label for found in self._client.search(self._model, query, k).items]
