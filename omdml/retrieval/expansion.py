"""Query expansion: a second search, from the query and what the first one found (MATHS 16).

Alpha query expansion (Radenovic, Tolias, Chum: *Fine-tuning CNN Image Retrieval with No Human Annotation*, 2018) over
average query expansion (Chum et al. 2007).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# The power of the cosine in an item's weight.
ALPHA = 3


def shares(point: Array, nearest: Array) -> NDArray[np.float64]:
    """Weights (1 + n,), 1 in total, of the query and its nearest items in the mean that the second search starts from.

    Before scaling, the query has the weight 1, and an item the cube of its cosine with the query, or 0 if that is
    negative.

    Parameters
    ----------
    point : (R,)
        The query's embedding minus the mean of the gallery.
    nearest : (n, R)
        Embeddings of its nearest items minus the same mean.
    """
    query, items = np.asarray(point, np.float64), np.asarray(nearest, np.float64)
    lengths = np.linalg.norm(items, axis=1) * np.linalg.norm(query)
    cosines = np.divide(items @ query, lengths, out=np.zeros(len(items)), where=lengths > 0)
    weights = np.concatenate([[1.0], np.maximum(cosines, 0.0) ** ALPHA])
    return weights / weights.sum()
