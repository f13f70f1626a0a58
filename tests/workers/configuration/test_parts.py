"""Which models can be learned in parts."""

from __future__ import annotations

import pytest

from omdml.errors import ConfigurationError, FeedbackError
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.model_names import check_name
from omdml.workers.configuration.specs import Specs
from tests.support.worlds import catalogue


def configured(name="hot", **options):
    return load(None, {}, {"catalogues": {"items": {"path": "items"}}, "models": {name: {"parts": True, **options}}})


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("hot", {"learner": "lomdml"}, "only the state of dca is a sum"),
        ("hot", {"memory": 100}, "with memory = 100 sums fade"),
        ("hot", {"max_share_a_user": 0.5}, "depends on the order of all events"),
        ("hot-*", {}, "a pattern covers many models"),
        ("hot", {"parts": "yes"}, "expected true or false"),
        ("h" * 190, {}, "choose a shorter name"),
        ("hot::part-3", {"parts": False}, "configure models.hot"),
    ],
)
def test_a_model_that_cannot_be_learned_in_parts_is_refused(name, options, says):
    with pytest.raises(ConfigurationError, match=says):
        configured(name, **options)


def test_a_model_in_parts_has_no_parent():
    models = {"hot": {"parts": True, "parent": "other"}, "other": {}}
    with pytest.raises(ConfigurationError, match="leave the parent out"):
        load(None, {}, {"catalogues": {"items": {"path": "items"}}, "models": models})


def test_a_part_has_the_settings_of_its_model_and_no_event_may_name_it(tmp_path):
    models = {"hot": {"parts": True, "coordinates": "features"}, "*": {"coordinates": "features"}}
    items = catalogue(tmp_path / "items")
    configuration = load(None, {}, {"catalogues": {"items": {"path": str(tmp_path / "items")}}, "models": models})
    specs = Specs(configuration, {"items": items})
    assert configuration.in_parts == {"hot"}
    assert specs.of("hot::part-3") is specs.of("hot")
    assert specs.find("hot::part-3") is None
    assert specs.of_stored("other::part-3") is None
    assert configuration.match("other::part-3") is None
    assert specs.find("hot::part-x").label == "*"
    with pytest.raises(FeedbackError, match="send the event to 'hot'"):
        specs.accepts("hot::part-3")
    check_name("hot::part-x")


def test_parts_change_no_digest():
    in_parts, whole = configured().models["hot"], configured(parts=False).models["hot"]
    assert in_parts.parts
    assert in_parts.digest() == whole.digest()


def test_a_model_of_a_name_that_no_store_can_keep_is_refused():
    with pytest.raises(
        ConfigurationError, match=r"takes 260 characters once percent-encoded, .* choose a shorter name"
    ):
        configured("x" * 260, parts=False)
    assert configured("?" * 70, parts=False).match("x" * 70) is not None
