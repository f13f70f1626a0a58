"""Configuration: read, overridden, checked, and refused with the nearest valid name."""

from __future__ import annotations

import inspect
import math
import re
import tomllib
from pathlib import Path

import pytest

from omdml import DEFAULT_LEARNER, LEARNER_CLASSES, LEARNERS
from omdml.errors import ConfigurationError
from omdml.workers.configuration import config
from omdml.workers.configuration.loading import load

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "omdml.toml"
MODEL = {"catalogues": {"c": {"path": "items"}}, "models": {"shop": {"learner": "lomdml", "catalogue": "c"}}}


def test_the_sample_file_is_valid_and_says_the_defaults():
    loaded = load(SAMPLE, {})
    default = load(None, {}, {"catalogues": {"shop": {"path": "items/"}}, "models": {"shop": {}}})
    for section in ("log", "store", "worker", "node"):
        assert getattr(loaded, section) == getattr(default, section)
    shop = loaded.models["shop"]
    parameters = inspect.signature(LEARNERS[DEFAULT_LEARNER]).parameters
    assert shop.parameters == {name: parameters[name].default for name in parameters if name != "dims"}
    assert (shop.learner, shop.coordinates) == (DEFAULT_LEARNER, default.models["shop"].coordinates)


@pytest.mark.parametrize("name", sorted(set(LEARNERS) - {DEFAULT_LEARNER}))
def test_the_sample_has_a_model_of_every_learner_with_all_options_and_defaults(name):
    blocks = [block for block in SAMPLE.read_text().split("\n\n") if re.search(f'# learner = .*"{name}"', block)]
    assert len(blocks) == 1, f"deploy/omdml.toml should have one section of {name}, or name it beside a learner like it"
    (block,) = blocks
    lines = [line.removeprefix("# ") for line in block.splitlines()]
    ((_, options),) = tomllib.loads("\n".join(lines))["models"].items()
    defaults = config.defaults(name)
    for option, default in defaults.items():
        assert options[option] == default if default is not None else f"\n# # {option} = " in block
    if options.pop("learner") == name:
        assert set(options) - set(defaults) - {"coordinates"} == {"catalogue"}


def test_every_option_appears_in_the_sample_file():
    structs = {
        "log": {*config.FileLog.__struct_fields__, *config.KafkaLog.__struct_fields__},
        "catalogues": config.CatalogueConfig.__struct_fields__,
        # The learners' own parameters have a test of their own.
        "models": set(config.ModelConfig.__struct_fields__) - {"parameters"},
        "experiments": config.ExperimentConfig.__struct_fields__,
    }
    default = config.Configuration()
    options = {
        name: structs.get(name) or getattr(default, name).__struct_fields__ for name in default.__struct_fields__
    }
    # Each section begins with its name, which may be commented out, and may be there several times.
    _, *parts = re.split(r"(?m)^(?:# )?\[(\w+).*$", SAMPLE.read_text())
    for section, names in options.items():
        text = "".join(part for name, part in zip(parts[::2], parts[1::2], strict=True) if name == section)
        missing = [name for name in names if not re.search(rf"(?m)^(?:# )*{name} = ", text)]
        assert missing == [], section


def test_the_commented_kafka_section_is_valid():
    lines = SAMPLE.read_text().split("[store]")[0].splitlines()
    start = lines.index("# [log]")
    table = tomllib.loads("\n".join(line.removeprefix("# ") for line in lines[start:]))
    log = load(None, {}, {**MODEL, **table}).log
    assert isinstance(log, config.KafkaLog)
    assert log.member == "worker-1"


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(tmp_path):
    path = tmp_path / "omdml.toml"
    path.write_text(
        '[store]\nurl = "dir:one"\n[catalogues.c]\npath = "items"\n[models.shop]\nlearner = "lomdml"\nrank = 3\n'
    )
    environment = {"OMDML_STORE__URL": "redis://two", "OMDML_MODELS__shop__RANK": "7", "OMDML_CACHE": "elsewhere"}
    assert load(path, {}).store.url == "dir:one"
    loaded = load(path, environment)
    assert (loaded.store.url, loaded.models["shop"].parameters["rank"]) == ("redis://two", 7)
    assert load(path, environment, {"store": {"url": "dir:three"}}).store.url == "dir:three"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"stroe": {}}, "the configuration: no option 'stroe': did you mean 'store'"),
        ({"store": {"ulr": "dir:x"}}, "store: no option 'ulr': did you mean 'url'"),
        ({"webhook": {"ulr": "x"}}, "webhook: no option 'ulr': did you mean 'url'"),
        ({"links": {"bind": "x"}}, "links: no option 'bind'; expected one of"),
        ({"catalogues": {"items": {}}}, "catalogues.items: it has no path: add one, such as"),
        (
            {"logging": {"level": "loud"}},
            "logging.level is 'loud', expected one of 'debug', 'info', 'warning', 'error'",
        ),
        (
            {"log": {"kind": "kafka", "partitioner": "md5"}},
            "log.partitioner is 'md5', expected one of 'murmur2', 'crc32'",
        ),
        ({"worker": {"checkpoint_interval_s": 10**400}}, "worker.checkpoint_interval_s: the number is out of range"),
        ({"log": {"kind": "kafka", "topics": "x"}}, "log: no option 'topics': did you mean 'topic'"),
        ({"log": {"kind": "kafak"}}, "log.kind is 'kafak', expected 'file' or 'kafka'"),
        ({"models": {"shop": {"learner": "lomdm"}}}, "models.shop.learner is 'lomdm': did you mean 'lomdml'"),
        ({"models": {"shop": {"rnak": 3}}}, "models.shop: no option 'rnak': did you mean 'rank'"),
        ({"models": {"shop": {"learner": "lomdml", "eta": -1}}}, "models.shop: eta=-1: expected a rate above 0"),
        ({"models": {"shop": {"learner": "lomdml", "catalogue": "d"}}}, "models.shop.catalogue is 'd'"),
        ({"models": {"shop": {"coordinates": "maped"}}}, "models.shop.coordinates is 'maped', expected 'features' or"),
        ({"models": {"shop": {"index": "fast"}}}, "models.shop.index is 'fast', expected 'exact' or 'approximate'"),
        ({"models": {"shop": {"coordinates": 3}}}, "models.shop.coordinates is 3, expected 'features' or 'mapped'"),
        ({"models": {"shop": {"candidates": 3}}}, "models.shop.candidates is 3, expected an address, such as"),
        ({"models": {"shop-*": {"candidates": "lancedb:v"}}}, "models.shop-*.candidates: an index holds one model"),
        (
            {"models": {"shop": {"candidates": "lancedb:v", "index": "approximate"}}},
            "models.shop.candidates: index = 'approximate' needs all items in the node",
        ),
        (
            {"models": {"shop": {"candidates": "lancedb:v", "learner": "stml", "tasks": ["a", "b"]}}},
            "models.shop.candidates: an index holds the items in the sense of one task, and stml has several",
        ),
        (
            {"models": {"shop": {"candidates": "lancedb:v", "learner": "oasis"}}},
            "models.shop.candidates: the metric of oasis has no vectors of items",
        ),
        (
            {"models": {"shop": {"candidates": "lancedb:v", "learner": "signed"}}},
            "models.shop.candidates: the metric of signed has no vectors of items",
        ),
        ({"worker": {"publish_interval_s": 0}}, "worker.publish_interval_s is 0"),
        ({"worker": {"publish_interval_s": "soon"}}, "publish_interval_s"),
        ({"worker": {"publish_interval_s": math.nan}}, "worker.publish_interval_s is nan, expected a number from"),
        ({"worker": {"memory_mb": math.inf}}, "worker.memory_mb is inf, expected a number from 1 to 1,000,000"),
        ({"node": {"memory_mb": 0}}, "node.memory_mb is 0, expected a number from 1 to 1,000,000"),
        ({"worker": {"max_poll_records": 10**22}}, f"max_poll_records is 1{'0' * 22}, expected a number from 1 to"),
        ({"worker": {"max_poll_records": 16**5000}}, "max_poll_records is a number of 6,021 digits, expected"),
        ({"worker": {"save_mb_s": 1e-300}}, "worker.save_mb_s is 1e-300, expected a number from 0.001 to 1,000,000"),
        (
            {"guard": {"hold_out": 1}},
            "guard.hold_out is 1, expected a number from 2 to 1,000,000: one event",
        ),
        ({"node": {"hosts": ["shop.internal", "a b"]}}, "node.hosts holds 'a b', expected names such as shop.internal"),
        ({"node": {"hosts": [""]}}, "node.hosts holds '', expected names"),
        ({"node": {"hosts": ["*"]}}, "node.hosts holds '*', expected names such as shop.internal, no patterns"),
        ({"node": {"hosts": ["http://shop"]}}, "node.hosts holds"),
        (
            {"links": {"runbook": "javascript:alert(1)"}},
            "links.runbook is not an address, expected http://HOST",
        ),
        ({"links": {"grafana": "grafana.internal"}}, "links.grafana is not an address, expected http://HOST"),
        ({"models": {"": {}}}, "models.'': expected a section [models.NAME]"),
        ({"worker": 3}, "worker is 3, expected a table"),
        ({"log": {"kind": "kafka", "session_timeout_s": -5}}, "log.session_timeout_s is -5, expected a number from"),
        (
            {"log": {"kind": "kafka", "start_timeout_s": -1}},
            "log.start_timeout_s is -1, expected a number from 0.01",
        ),
        ({"log": {"kind": "kafka", "servers": ""}}, "log.servers is '', expected a value"),
        ({"log": {"kind": "kafka", "topic": ""}}, "log.topic is '', expected a value"),
        ({"log": {"kind": "kafka", "member": ""}}, "log.member is '', expected a value"),
        ({"log": {"group": ""}}, "log.group is '', expected a value"),
        ({"log": {"path": " "}}, "log.path is ' ', expected a value"),
        ({"log": {"path": "one", "letters": "./one"}}, "log.letters is log.path"),
        ({"store": {"url": ""}}, "store.url is '', expected a value"),
        ({"catalogues": {"c": {"path": ""}}}, "catalogues.c.path is '', expected a value"),
        ({"node": {"bind": "nonsense"}}, "node.bind is 'nonsense', expected host:port"),
        ({"worker": {"bind": "nonsense"}}, "worker.bind is 'nonsense', expected host:port"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(table, message):
    merged = {**MODEL, **table}
    with pytest.raises(ConfigurationError) as caught:
        load(None, {}, merged)
    assert message in str(caught.value)


def test_a_file_that_is_missing_or_no_toml_is_reported(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere.toml: cannot be read"):
        load(tmp_path / "nowhere.toml", {})
    (tmp_path / "bad.toml").write_text("[log\n")
    with pytest.raises(ConfigurationError, match=r"not TOML: .*: a text needs quotes, as in path = "):
        load(tmp_path / "bad.toml", {})


@pytest.mark.parametrize("text", ["[models.shop]\n[models.shop]\n", '[log]\nkind = "kafka"\nkind = "file"\n'])
def test_a_name_given_twice_in_a_file_is_not_called_a_lack_of_quotes(tmp_path, text):
    (tmp_path / "twice.toml").write_text(text)
    with pytest.raises(ConfigurationError, match=r"\(at line \d+, column \d+\): .* is there twice: leave one"):
        load(tmp_path / "twice.toml", {})


def test_a_byte_order_mark_is_ignored_and_other_encodings_are_named(tmp_path):
    path = tmp_path / "omdml.toml"
    path.write_bytes(b'\xef\xbb\xbf[store]\nurl = "dir:one"\n')
    assert load(path, {}).store.url == "dir:one"
    path.write_text("[store]\n", encoding="utf-16")
    with pytest.raises(ConfigurationError, match=r"omdml.toml: no text in UTF-8 .*: save it as UTF-8"):
        load(path, {})


@pytest.mark.parametrize("name", ["OMDML_LOG", "OMDML_STORE", "OMDML_MODELS"])
def test_a_variable_that_names_a_section_is_refused(name):
    with pytest.raises(ConfigurationError, match=f"environment {name}: this is a section, .*{name}__OPTION"):
        load(None, {name: "1"})


def test_mapped_coordinates_alone_change_the_digest():
    plain, explicit, mapped = (
        load(None, {}, {**MODEL, "models": {"shop": {"learner": "lomdml", **options}}}).models["shop"]
        for options in ({}, {"coordinates": "features"}, {"coordinates": "mapped"})
    )
    assert plain.digest() == explicit.digest() != mapped.digest()
    assert (plain.coordinates, mapped.coordinates) == ("features", "mapped")


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_only_dca_learns_on_mapped_coordinates_if_its_model_does_not_say(name):
    shop = load(None, {}, {**MODEL, "models": {"shop": {"learner": name}}}).models["shop"]
    assert shop.coordinates == ("mapped" if name == "dca" else "features")


def test_an_exact_name_is_matched_before_a_pattern():
    models = {
        "user-*": {"learner": "lomdml", "catalogue": "c", "rank": 1},
        "user-7": {"learner": "lomdml", "catalogue": "c", "rank": 2},
    }
    loaded = load(None, {}, {**MODEL, "models": models})
    assert loaded.match("user-7")[0] == "user-7"
    assert loaded.match("user-8")[0] == "user-*"
    assert loaded.match("shop") is None


def test_groups_of_coordinates_can_be_configured():
    models = {"pages": {"learner": "diagonal", "groups": {"regions": [0, 0, 1], "words": 2}}}
    loaded = load(None, {}, {"catalogues": {"items": {"path": "items"}}, "models": models})
    assert loaded.models["pages"].parameters["groups"] == {"regions": [0, 0, 1], "words": 2}
    models["pages"]["groups"] = {"regions": "two"}
    with pytest.raises(ConfigurationError, match=r"models\.pages: .*"):
        load(None, {}, {"catalogues": {"items": {"path": "items"}}, "models": models})


def test_the_configuration_knows_the_name_of_every_learner():
    assert {name: kind.__name__ for name, kind in LEARNERS.items()} == LEARNER_CLASSES, "in omdml/__init__.py"


def test_all_mistakes_of_one_model_are_reported_at_once():
    catalogues = {"items": {"path": "items/"}}
    several = {"expand": 1000, "rnak": 3, "rank": 0, "max_models": 3, "catalogue": "itms", "parent": "nobody"}
    places = ["catalogue is 'itms'", "expand is 1000", "max_models", "no option 'rnak'", "parent is 'nobody'"]
    for options, expected in (
        ({**several, "learner": "dcaa"}, ["learner is 'dcaa'", *places]),
        ({**several, "parent": 3}, [*places[:4], "rank=0", "parent is 3"]),
        ({**several, "parts": True, "memory": 5}, [*places, "rank=0", "parts: what the parent", "with memory = 5"]),
        ({"index": "approximate", "candidates": "lancedb:x", "learner": "oasis"}, ["needs all items", "no vectors"]),
    ):
        with pytest.raises(ConfigurationError) as caught:
            load(None, {}, {"catalogues": catalogues, "models": {"shop": options}}, thorough=True)
        mistakes = caught.value.mistakes
        assert len(mistakes) == len(expected), mistakes
        assert all(any(place in mistake for mistake in mistakes) for place in expected), mistakes
    with pytest.raises(ConfigurationError) as caught:
        load(None, {}, {"models": {"shop": {"learner": "dcaa", "expand": -1}}}, thorough=True)
    assert len(caught.value.mistakes) == 3
