"""Turns a text into a vector: hashed words, pairs of words and letter triples, then TF-IDF and a truncated SVD.

This is latent semantic analysis (Deerwester et al. 1990). Letter triples make words similar that differ by an ending or
a typing error, in any language.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.blas import one_blas_thread
from omdml.errors import CatalogueError

DIMENSIONS = 64
# The most terms that are used. Those that occur in the most texts are chosen.
VOCABULARY = 30_000
# The most texts that terms and directions are learned from. They are spread evenly over all texts.
SAMPLE = 20_000
# Only this many characters of a text are read.
MAX_CHARACTERS = 20_000
# Up to this size a dense decomposition is quick, and it is exact.
DENSE = 300
_WORD = re.compile(r"\w+")


class Words:
    """How texts of one column are described.

    Parameters
    ----------
    terms
        (V,) uint32, rising: hashes of the terms that are known.
    weights
        (V,) float32: inverse document frequencies.
    basis
        (V, d) float32: directions in which the texts vary most.
    """

    def __init__(self, terms: NDArray[np.uint32], weights: NDArray[np.float32], basis: NDArray[np.float32]) -> None:
        self.terms, self.weights, self.basis = terms, weights, basis

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""
        return int(self.basis.shape[1])

    @classmethod
    def fit(cls, texts: Sequence[str]) -> Words:
        """Learn terms and directions from texts (see :func:`sample_of`); raises CatalogueError if they hold no word."""
        counted = [hashed(text) for text in texts]
        documents = Counter(term for counts in counted for term in counts)
        if not documents:
            raise CatalogueError("no text holds a word: leave the column out")
        # A term that occurs in only one text makes no two texts similar. A small table may have only such terms.
        repeated = {term: count for term, count in documents.items() if count > 1} or documents
        frequent = sorted(repeated, key=lambda term: (-repeated[term], term))[:VOCABULARY]
        terms = np.array(sorted(frequent), np.uint32)
        frequencies = np.array([documents[int(term)] for term in terms])
        weights = (np.log((1 + len(texts)) / (1 + frequencies)) + 1).astype(np.float32)
        unprojected = cls(terms, weights, np.empty((len(terms), 0), np.float32))
        return cls(terms, weights, _directions(unprojected.weighed(counted)))

    def describe(self, text: str) -> NDArray[np.float32] | None:
        """The vector (d,) of a text; None if it holds no term that is known."""
        places, values = self._weighed(hashed(text))
        return values @ self.basis[places] if len(places) else None

    def weighed(self, counted: Iterable[Counter[int]]) -> Any:
        """TF-IDF of texts, a sparse matrix (n, V); each row is of unit length or zero."""
        from scipy import sparse

        columns: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float32]] = []
        ends = [0]
        for counts in counted:
            places, weighed = self._weighed(counts)
            columns.append(places)
            values.append(weighed)
            ends.append(ends[-1] + len(places))
        data = (np.concatenate(values), np.concatenate(columns), np.array(ends))
        return sparse.csr_array(data, shape=(len(ends) - 1, len(self.terms)))

    def _weighed(self, counts: Counter[int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Numbers of the known terms of a text, rising, and their TF-IDF; both empty if there are none."""
        hashes = np.fromiter(counts, np.uint32, len(counts))
        times = np.fromiter(counts.values(), np.float32, len(counts))
        places = np.minimum(np.searchsorted(self.terms, hashes), len(self.terms) - 1)
        is_known = self.terms[places] == hashes
        order = np.argsort(places[is_known])
        places, times = places[is_known][order].astype(np.int64), times[is_known][order]
        weighed = (1 + np.log(times)) * self.weights[places]
        return places, (weighed / np.sqrt((weighed**2).sum())).astype(np.float32) if len(places) else weighed


def sample_of(count: int) -> NDArray[np.int64]:
    """The numbers of the texts to learn from, if there are ``count``."""
    return np.unique(np.linspace(0, count - 1, min(count, SAMPLE)).astype(np.int64))


def hashed(text: str) -> Counter[int]:
    """How often each term occurs in a text, by the CRC-32 of the term.

    Examples
    --------
    >>> hashed("Blue mugs").total(), hashed("Blue mugs") == hashed("blue  MUGS!")
    (11, True)
    """
    return Counter(zlib.crc32(term.encode("utf-8", "surrogatepass")) for term in terms_of(text))


def terms_of(text: str) -> Iterator[str]:
    """Words, neighbouring words, and three letters in a row, where ``<`` and ``>`` begin and end a word.

    Examples
    --------
    >>> list(terms_of("Blue mug"))
    ['blue', '#<bl', '#blu', '#lue', '#ue>', 'mug', '#<mu', '#mug', '#ug>', 'blue mug']
    """
    words = _WORD.findall(text[:MAX_CHARACTERS].casefold())
    for word in words:
        yield word
        around = f"<{word}>"
        yield from (f"#{around[start : start + 3]}" for start in range(len(around) - 2))
    yield from (f"{first} {second}" for first, second in pairwise(words))


def _directions(rows: Any) -> NDArray[np.float32]:
    """The right singular vectors (V, d) of texts, by falling singular value; the same for the same texts."""
    # Only a build needs it, and it takes a tenth of a second to load.
    from scipy.sparse.linalg import svds

    smaller = min(rows.shape)
    with one_blas_thread():
        if smaller <= DENSE:
            _, values, right = np.linalg.svd(rows.toarray(), full_matrices=False)
        else:
            start = np.full(smaller, 1 / np.sqrt(smaller))
            _, values, right = svds(rows.astype(np.float64), DIMENSIONS, v0=start)
    order = np.argsort(-values)[:DIMENSIONS]
    right = right[order][values[order] > 1e-6 * values.max()]
    # The sign of a singular vector is arbitrary: its largest entry is positive.
    right *= np.sign(np.take_along_axis(right, np.abs(right).argmax(axis=1)[:, None], axis=1))
    return np.ascontiguousarray(right.T, np.float32)
