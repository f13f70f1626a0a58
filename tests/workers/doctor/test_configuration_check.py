"""``omdml config``: what it finds in a configuration without asking any server."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from omdml.workers.cli import main
from omdml.workers.configuration.schema import schema
from tests.support.worlds import catalogue

SOUND = """
[log]
kind = "kafka"
servers = "localhost:1"
[store]
url = "redis://localhost:1"
[catalogues.items]
path = "items"
[models.shop]
learner = "lomdml"
rank = 3
"""


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Writes a configuration beside a catalogue, and checks it."""
    catalogue(tmp_path / "items")
    monkeypatch.chdir(tmp_path)

    def run(text, *options):
        (tmp_path / "omdml.toml").write_text(text)
        return CliRunner().invoke(main, ["config", "check", *options])

    return run


def test_a_configuration_is_called_sound_though_nothing_it_names_answers(check):
    done = check(SOUND)
    assert done.exit_code == 0, done.output
    assert "shop" in done.output
    findings = json.loads(check(SOUND, "--json").output)["findings"]
    assert {entry["level"] for entry in findings} == {"ok"}
    assert [entry["check"] for entry in findings] == ["catalogues", "models", "rates", "store", "node"]


def test_each_model_that_cannot_begin_is_named(check):
    learner = 'learner = "setnet"\nclusters = 400\n'
    done = check(SOUND + "".join(f"[models.{name}]\n{learner}" for name in ("faces", "photos")), "--json")
    wrong = [entry["text"] for entry in json.loads(done.output)["findings"] if entry["level"] == "error"]
    assert [text.partition(": k-means of 400 clusters")[0] for text in wrong] == ["models.faces", "models.photos"]


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (SOUND.replace('items"\n[', 'nowhere"\n['), "nowhere/catalogue.json: there is no catalogue that can be read"),
        (SOUND.replace("rank = 3", 'rank = 3\ncoordinates = "mapped"'), "map"),
        (SOUND + '[node]\nbind = "0.0.0.0:80"\n', "there is no node.token"),
        (SOUND.replace("rank", "rnak"), "did you mean 'rank'?"),
        (SOUND + '[worker]\nsave_mb_s = "many"\n', "worker.save_mb_s: expected a number, got text"),
        (
            SOUND.replace("redis://localhost:1", "mysql://host"),
            "store.url: got 'mysql://host', expected one of redis://HOST",
        ),
        (
            SOUND.replace("[models", '[catalogues.more]\npath = "items"\n[models'),
            "models.shop.catalogue is not set: name one of items, more",
        ),
        (SOUND + "[model]\n", "did you mean 'models'?"),
        ('[catalogues.items]\npath = "items"\n', "no model is configured"),
    ],
)
def test_a_wrong_configuration_ends_with_2_and_says_what_is_wrong(check, wrong, expected):
    done = check(wrong)
    assert done.exit_code == 2
    assert expected in " ".join(done.output.replace("│", " ").split())


MISTAKEN = """
[stroe]
url = "dir:state"
[log]
kind = "kafka"
topics = "x"
ssl_cafile = "ca.pem"
sasl_plain_username = "u"
partitioner = "md5"
group = ""
[worker]
publish_interval_s = 0
save_mb_s = "many"
[guard]
tolerance = 9
moved = 0
[node]
bind = "nonsense"
hosts = ["*", "a b"]
token_file = "nofile"
origins = ["shop", "https://a/b"]
[node.tokens.page]
role = "boss"
[catalogues.items]
path = 3
[catalogues.more]
[experiments.new]
share = "half"
[experiments.old]
model = "shop"
against = "fourth"
share = 4
[models.shop]
catalogue = "itmes"
rnak = 3
index = "fast"
[models.other]
learner = "lomdm"
[models.third]
catalogue = "items"
learner = "lomdml"
eta = -1
rank = 0
parent = "shop"
[models.fourth]
catalogue = "items"
parent = "nowhere"
[models."user-*"]
catalogue = "items"
max_models = "many"
"""


def test_all_mistakes_of_a_file_are_listed_but_none_that_follows_from_another(check, monkeypatch):
    monkeypatch.setenv("OMDML_STORE_URL", "dir:state")
    done = check(MISTAKEN, "--json")
    assert done.exit_code == 2
    findings = json.loads(done.output)["findings"]
    assert {(entry["check"], entry["level"]) for entry in findings} == {("configuration", "error")}
    begins = [
        "the configuration: no option 'stroe'", "log: no option 'topics'", "catalogues.more: it has no path",
        "worker.save_mb_s: expected a number, got text", "log.partitioner is 'md5', expected one of",
        "catalogues.items.path: expected text, got a whole number",
        "experiments.new.share: expected a number, got text", "worker.publish_interval_s is 0, expected",
        "guard.tolerance is 9", "guard.moved is 0", "log.group is ''", "node.bind is 'nonsense'",
        "node.hosts holds '*'", "node.hosts holds 'a b'", "models.shop.catalogue is 'itmes'",
        "models.shop.index is 'fast'", "models.shop: no option 'rnak'", "models.other.learner is 'lomdm'",
        "models.other.catalogue is not set",
        "models.third: eta=-1", "models.third: rank=0", "models.fourth.parent is 'nowhere'",
        "experiments.old.share is 4", "models.user-*.max_models: expected a whole number, got text",
        "node.token_file 'nofile': cannot be read", "environment OMDML_STORE_URL: did you mean OMDML_STORE__URL",
        "node.tokens.page.role is 'boss', expected one of", "log.ssl_cafile is set", "log.sasl_plain_username is set",
        "node.origins holds 'shop'", "node.origins holds 'https://a/b'",
    ]  # fmt: skip
    texts = [entry["text"] for entry in findings]
    assert sorted(begin for begin in begins for text in texts if text.startswith(begin)) == sorted(begins), texts
    assert len(texts) == len(begins), texts
    # A worker that is started reports the first mistake, and says where to read of the others.
    output = CliRunner().invoke(main, ["worker"]).output
    assert "nofile" in output
    assert "(and 20 more: omdml config check lists all)" in output


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (f'[node.tokens.page]\ntoken = "{"t" * 16}"\nrole = "operater"\n', "node.tokens.page.role is 'operater'"),
        ('token = 5\n', "node.token: expected text, got a whole number"),
        ("", "node.private asks for a token, and there is none"),
    ],
)  # fmt: skip
def test_a_token_with_a_mistake_is_not_reported_as_a_missing_one_too(check, tokens, expected):
    done = check(f"{SOUND}[node]\nprivate = true\n{tokens}", "--json")
    texts = [entry["text"] for entry in json.loads(done.output)["findings"] if entry["check"] == "configuration"]
    assert [text.startswith(expected) for text in texts] == [True], texts


def test_a_model_that_does_not_fit_is_reported_once(check):
    done = check(SOUND.replace("rank = 3", 'rank = 3\ncoordinates = "mapped"'), "--json")
    wrong = [entry["check"] for entry in json.loads(done.output)["findings"] if entry["level"] == "error"]
    assert wrong == ["models"]


def test_a_catalogue_in_redis_is_left_to_the_doctor(check):
    far = '[catalogues.far]\npath = "redis://localhost:1/0#far"\n[models.other]\ncatalogue = "far"\n'
    done = check(SOUND.replace("[models.shop]", far + '[models.shop]\ncatalogue = "items"'))
    assert done.exit_code == 0, done.output
    assert "in Redis: far, and the models on it" in done.output


def test_the_schema_is_printed_as_json():
    done = CliRunner().invoke(main, ["config", "schema"])
    assert json.loads(done.output) == json.loads(json.dumps(schema()))
