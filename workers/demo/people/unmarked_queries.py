"""Measures how good answers are, with queries that nobody searched for or marked."""

from __future__ import annotations

import numpy as np

from omdml.errors import MeasureError
from omdml.evaluate import average_precision
from omdml.workers.demo.people.ground_truth import Truth
from omdml.workers.demo.services.node_client import NodeClient

PAGE = 10


class UnmarkedQueries:
    """The queries that people neither search for nor mark, asked of a node.

    Raises
    ------
    ClientError
        Every measure raises it if the node does not answer.
    """

    def __init__(self, client: NodeClient, model: str, truth: Truth) -> None:
        self._client, self._model, self._truth = client, model, truth

    def mean_average_precision(self) -> float:
        """The mAP over the full ranking of all items that people know; raises MeasureError if the node ranks fewer."""
        count = self._truth.answers
        ranked = [self._relevance(query, count) for query in self._truth.held_out]
        shortest = min(map(len, ranked))
        if shortest < count:
            raise MeasureError(
                f"the node ranks {shortest} items, {count} are labelled: mAP needs all of them in its catalogue"
            )
        return float(np.mean([average_precision(relevance) for relevance in ranked]))

    def precision(self) -> float:
        """Mean share of relevant items among the first ten."""
        return float(np.mean([np.mean(self._relevance(query, PAGE)) for query in self._truth.held_out]))

    def _relevance(self, query: str, k: int) -> list[bool]:
        """Whether each item of the answer is relevant, closest first."""
        answer = self._client.search(self._model, query, k, self._truth.task)
        return [self._truth.fits(query, item.id) for item in answer.items]
