"""Texts of similar words become vectors that lie close together."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from omdml.errors import CatalogueError
from omdml.streams.describers.words import DENSE, DIMENSIONS, Words, sample_of, terms_of
from tests.support.catalogues.products import drawn

TEXTS = ["red mug", "red cup", "blue shirt", "blue trousers", "a large green lamp", "small green lamps"]


def close(words, text, other_text):
    a, b = words.describe(text), words.describe(other_text)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def naive_tfidf(words, text):
    """Compute it as the definition says, term by term."""
    place_of = {int(term): place for place, term in enumerate(words.terms)}
    row = np.zeros(len(words.terms))
    terms = list(terms_of(text))
    for term in set(terms):
        place = place_of.get(zlib.crc32(term.encode()))
        if place is not None:
            row[place] = (1 + np.log(terms.count(term))) * words.weights[place]
    return row / np.linalg.norm(row)


def test_a_text_is_described_as_the_definition_says():
    words = Words.fit(TEXTS)
    for text in TEXTS:
        np.testing.assert_allclose(words.describe(text), naive_tfidf(words, text) @ words.basis, rtol=1e-5, atol=1e-6)


def test_texts_that_share_words_are_close_whatever_their_case_endings_and_typos():
    words = Words.fit(TEXTS)
    assert close(words, "red mug", "red cup") > close(words, "red mug", "blue shirt") + 0.3
    assert close(words, "green lamp", "GREEN lamps!") > 0.7
    assert close(words, "blue trousers", "blue trowsers") > 0.7


def test_texts_without_a_known_word_have_no_vector():
    words = Words.fit(TEXTS)
    assert words.describe("") is None
    assert words.describe("xyzzy") is None
    with pytest.raises(CatalogueError, match="no text holds a word"):
        Words.fit(["", " ", "!"])


def test_one_text_is_enough_and_texts_alike_have_one_direction():
    assert Words.fit(["one"]).dim == 1
    assert Words.fit(["same words"] * 5).dim == 1


@pytest.mark.parametrize("count", [60, DENSE + 200])
def test_the_same_texts_give_the_same_bytes_whatever_decomposition(count):
    texts = [f"{product.description} number {index}" for index, (product, _) in enumerate(drawn() * 13)][:count]
    first, second = Words.fit(texts), Words.fit(texts)
    assert first.dim <= DIMENSIONS
    np.testing.assert_array_equal(first.basis, second.basis)
    np.testing.assert_allclose(first.basis.T @ first.basis, np.eye(first.dim), atol=1e-4)


def test_a_long_table_is_sampled_evenly():
    assert sample_of(3).tolist() == [0, 1, 2]
    chosen = sample_of(1_000_000)
    assert len(chosen) <= 20_000
    assert (chosen[0], chosen[-1]) == (0, 999_999)
