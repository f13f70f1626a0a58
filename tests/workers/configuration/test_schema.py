"""The JSON schema of the configuration says what the configuration says."""

from __future__ import annotations

import tomllib

import jsonschema
import pytest

from omdml.errors import ConfigurationError
from omdml.learners import LEARNERS
from omdml.workers.configuration.config import Configuration, defaults
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.schema import STRUCTS, schema
from omdml.workers.configuration.secret_files import ENDING, IN_FILES
from tests.support.processes import ROOT

# Without a catalogue, a model is refused for that alone.
ITEMS = "[catalogues.items]\npath = 'items'\n"
VALIDATOR = jsonschema.Draft202012Validator(schema())


def errors(text):
    """What the schema finds wrong with a TOML file."""
    return [error.message for error in VALIDATOR.iter_errors(tomllib.loads(text))]


def test_the_schema_is_sound_and_the_file_with_every_option_is_valid():
    VALIDATOR.check_schema(VALIDATOR.schema)
    assert errors((ROOT / "deploy/omdml.toml").read_text()) == []


def test_the_schema_names_every_section_and_option_that_a_file_may_have():
    parts = VALIDATOR.schema["$defs"]
    assert list(parts["Configuration"]["properties"]) == list(Configuration.__struct_fields__)
    assert STRUCTS.keys() == IN_FILES.keys()
    for section, part in STRUCTS.items():
        assert {option + ENDING for option in IN_FILES[section]} <= parts[part]["properties"].keys()
    assert VALIDATOR.is_valid({"models": {"shop": {"candidates_file": "/run/secrets/index"}}})
    assert not VALIDATOR.is_valid({"models": {"shop": {"candidate_file": "/run/secrets/index"}}})


@pytest.mark.parametrize("learner", list(LEARNERS))
def test_the_schema_knows_each_learners_hyperparameters(learner):
    chosen = {name: value for name, value in defaults(learner).items() if isinstance(value, int | float | str)}
    model = {"learner": learner, **chosen}
    assert not list(VALIDATOR.iter_errors({"models": {"shop": model}}))
    (error,) = VALIDATOR.iter_errors({"models": {"shop": {**model, "unheard_of": 1}}})
    assert "unheard_of" in error.message


@pytest.mark.parametrize(
    ("text", "expected", "mistake"),
    [
        ("[worker]\npublish = 1", "'publish' was unexpected", "worker: no option 'publish'"),
        ("[worker]\nsave_mb_s = 'fast'", "'fast' is not of type 'number'", "worker.save_mb_s: expected a number"),
        (f"{ITEMS}[models.shop]\nlearner = 'dac'", "'dac' is not one of", "models.shop.learner is 'dac'"),
        (f"{ITEMS}[models.shop]\neta = 0.1", "'eta' was unexpected", "models.shop: no option 'eta'"),
        (f"{ITEMS}[models.'shop-*']\nmax_models = 0", "less than the minimum of 1", "models.shop-*.max_models: "),
        ("[log]\nkind = 'kafka'\npath = 'x'", "not valid under any of the given schemas", "log: no option 'path'"),
        ("[catalogues.items]\npath = 'x'\npath_file = 'y'", "is valid under each of", "has path and path_file"),
        ("[catalogues.items]\n", "not valid under any of the given schemas", "catalogues.items: it has no path"),
        ("[node]\nready = 'some'", "'some' is not one of", "node.ready is 'some'"),
    ],
)
def test_what_the_schema_refuses_the_configuration_refuses_too(text, expected, mistake, tmp_path):
    (message,) = errors(text)
    assert expected in message
    file = tmp_path / "omdml.toml"
    file.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load(file, {}, thorough=True)
    assert any(mistake in text for text in refused.value.mistakes), refused.value.mistakes
