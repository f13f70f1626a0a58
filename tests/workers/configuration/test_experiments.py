"""Experiments in a configuration: what they compare, and which of them are refused."""

from __future__ import annotations

import pytest

from omdml.errors import ConfigurationError
from omdml.workers.configuration.loading import load

CATALOGUES = {"items": {"path": "items"}}
MODELS = {"shop": {"learner": "lomdml"}, "two": {"learner": "lomdml"}, "user-*": {"learner": "lomdml"}}


def loaded(environment=None, **experiments):
    return load(None, environment or {}, {"catalogues": CATALOGUES, "models": MODELS, "experiments": experiments})


def test_two_models_or_two_versions_are_compared():
    result = loaded(metric={"model": "shop", "against": "two"}, old={"model": "user-1", "against_version": 12})
    assert (result.experiments["metric"].against, result.experiments["metric"].share) == ("two", 0.1)
    assert result.experiments["old"].against_version == 12


def test_an_option_may_come_from_the_environment():
    experiment = {"model": "shop", "against": "two"}
    result = loaded({"OMDML_EXPERIMENTS__metric__SHARE": "0.5"}, metric=experiment)
    assert result.experiments["metric"].share == 0.5


@pytest.mark.parametrize(
    ("experiment", "expected"),
    [
        ({"model": "shop"}, "needs exactly one of against and against_version"),
        ({"model": "shop", "against": "two", "against_version": 1}, "needs exactly one"),
        ({"model": "shop", "against": "shop"}, "the model itself"),
        ({"model": "shop", "against": "three"}, "no model is configured under this name"),
        ({"model": "shops", "against": "two"}, "experiments.a.model is 'shops'"),
        ({"model": "shop", "against_version": -1}, "expected 0 or more"),
        ({"model": "shop", "against": "two", "share": 0}, "above 0, at most 1"),
        ({"model": "shop", "against": "two", "share": 1.5}, "above 0, at most 1"),
        ({"model": "shop", "against": "two", "shares": 0.5}, "no option 'shares'"),
    ],
)
def test_an_experiment_that_cannot_run_is_refused(experiment, expected):
    with pytest.raises(ConfigurationError, match=expected):
        loaded(a=experiment)


def test_a_model_has_one_experiment_at_most():
    with pytest.raises(ConfigurationError, match=r"experiments.a already uses the searches of 'shop'"):
        loaded(a={"model": "shop", "against": "two"}, b={"model": "shop", "against_version": 0})


def test_a_name_that_cannot_stand_in_an_id_is_refused():
    with pytest.raises(ConfigurationError, match="expected a name of 1 to 64"):
        loaded(**{"a:b": {"model": "shop", "against": "two"}})
