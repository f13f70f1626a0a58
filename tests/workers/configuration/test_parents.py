"""What a configuration must say of a parent."""

from __future__ import annotations

import pytest

from omdml.errors import ConfigurationError
from omdml.workers.configuration.loading import load


def configured(**models):
    """A configuration of these models on two catalogues. In names ``__`` stands for a dash and ``_all`` for a star."""
    named = {
        name.replace("__", "-").replace("_all", "*"): {"catalogue": "a", **model} for name, model in models.items()
    }
    return load(None, {}, {"catalogues": {"a": {"path": "a"}, "b": {"path": "b"}}, "models": named})


def test_a_pattern_and_a_name_may_begin_from_a_named_model():
    configuration = configured(
        main={"memory": 9}, user___all={"parent": "main", "memory": 500}, shop={"parent": "main"}
    )
    assert [model.parent for model in configuration.models.values()] == ["", "main", "main"]


def test_a_parent_does_not_change_what_a_model_that_began_learns_with():
    alone, with_parent = configured(main={}, shop={}), configured(main={}, shop={"parent": "main"})
    assert alone.models["shop"].digest() == with_parent.models["shop"].digest()


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        ({"shop": {"parent": "main"}}, r"models.shop.parent is 'main', expected a model that has a section of its own"),
        ({"shop": {"parent": "shop"}}, "the model itself, expected another one"),
        ({"main___all": {}, "shop": {"parent": "main-7"}}, r"not only a pattern: add \[models.main-7\]"),
        ({"main___all": {}, "shop": {"parent": "main-*"}}, "a pattern, expected the name of one model"),
        (
            {"main": {}, "middle": {"parent": "main"}, "shop": {"parent": "middle"}},
            "which has the parent 'main' itself: name 'main' here too",
        ),
        (
            {"main": {"parent": "shop"}, "shop": {"parent": "main"}},
            "which has the parent 'main' itself: name 'main' here",
        ),
        (
            {"main": {"learner": "lomdml"}, "shop": {"learner": "lomdml", "parent": "main"}},
            "lomdml cannot begin from another model, only dca can",
        ),
        ({"main": {"learner": "lomdml"}, "shop": {"parent": "main"}}, "its learner is 'lomdml', this model's is 'dca'"),
        ({"main": {"catalogue": "b"}, "shop": {"parent": "main"}}, "its catalogue is 'b', this model's is 'a'"),
        (
            {"main": {"coordinates": "features"}, "shop": {"parent": "main"}},
            "its coordinates is 'features', this model's is 'mapped'",
        ),
        (
            {"main": {"rank": 64}, "shop": {"parent": "main", "seed": 3}},
            r"different parameters \(rank 64 and 512, seed 0 and 3\), expected the same ones; only memory may differ",
        ),
        ({"main": {}, "shop": {"parent": 5}}, "parent is 5, expected the name of a model"),
    ],
)
def test_a_parent_that_no_model_can_begin_from_is_refused(models, expected):
    with pytest.raises(ConfigurationError, match=expected):
        configured(**models)
