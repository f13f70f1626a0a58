"""The drawn products of the demo."""

from __future__ import annotations

import itertools

import pytest

from omdml.errors import ConfigurationError
from omdml.workers.demo.products import COLORS, MATERIALS, PATTERNS, SHAPES, SIZES, Products, draw_products
from omdml.workers.demo.run import products_and_subject


def test_no_property_of_a_drawn_product_reveals_another():
    products = draw_products(1200)
    assert len({product.id for product in products}) == 1200
    kinds = {"shape": SHAPES, "color": COLORS, "pattern": PATTERNS, "size": SIZES, "material": MATERIALS}
    for known, other in itertools.permutations(kinds, 2):
        for value in kinds[known]:
            values = [getattr(product, other) for product in products if getattr(product, known) == value]
            shares = {choice: values.count(choice) / len(values) for choice in kinds[other]}
            assert shares == pytest.approx(dict.fromkeys(kinds[other], 1 / len(kinds[other])), abs=0.15), value
    assert not any(product.pattern in product.description for product in products)


def test_products_are_built_from_their_pictures_and_words(tmp_path):
    products = Products(draw_products(30))
    products.build(tmp_path / "items")
    products.write_attributes(tmp_path / "attributes.jsonl")
    assert len(list((tmp_path / "pictures").glob("*.png"))) == 30
    assert (tmp_path / "items" / "describer.safetensors").exists()
    assert len((tmp_path / "attributes.jsonl").read_text().splitlines()) == 30


def test_a_learner_that_takes_no_triplets_is_refused():
    with pytest.raises(ConfigurationError, match="--pictures needs a learner that takes triplets, setnet takes none"):
        products_and_subject("setnet", 0, print)
