"""Secrets: where they may come from, and that nothing that omdml prints or logs shows them."""

from __future__ import annotations

import re

import httpx
import pytest
from click.testing import CliRunner

from omdml.errors import ConfigurationError, OmdmlError
from omdml.streams.addresses import masked
from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.stores.opening import open_store
from omdml.workers.cli import main
from omdml.workers.configuration.loading import load
from omdml.workers.doctor.checks.installation import examine
from omdml.workers.wiring.indexes import index_of_candidates
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.worlds import catalogue

SECRET = "hush-0123456789-hush"
MODEL = {"catalogues": {"c": {"path": "items"}}, "models": {"shop": {"learner": "lomdml", "catalogue": "c"}}}
KAFKA = {"kind": "kafka", "security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u"}


@pytest.fixture
def secret(tmp_path):
    """A file with the secret and a newline behind it, as editors and `echo` write files."""
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    return str(path)


@pytest.mark.parametrize("option", ["LOG__SASL_PLAIN_PASSWORD", "LOG__SSL_PASSWORD", "NODE__TOKEN", "STORE__URL"])
def test_every_secret_can_be_in_the_environment_or_in_a_file_that_it_names(tmp_path, secret, option):
    path = tmp_path / "omdml.toml"
    lines = "".join(f'{name} = "{value}"\n' for name, value in KAFKA.items())
    models = '[catalogues.c]\npath = "items"\n[models.shop]\n'
    path.write_text(f'[log]\n{lines}sasl_plain_password = "of-the-file"\n[store]\nurl = "dir:of-the-file"\n{models}')
    section, name = option.lower().split("__")
    for environment in ({f"OMDML_{option}": SECRET}, {f"OMDML_{option}_FILE": secret}):
        assert getattr(getattr(load(path, environment), section), name) == SECRET
    path.write_text(path.read_text().replace('"of-the-file"', '"x"') + f'[node]\ntoken_file = "{secret}"\n')
    assert load(path, {}).node.token == SECRET
    assert load(path, {"OMDML_NODE__TOKEN": "another-0123456789"}).node.token == "another-0123456789"


def test_the_address_of_a_catalogue_can_be_in_a_file(secret, tmp_path):
    path = tmp_path / "omdml.toml"
    path.write_text(f'[catalogues.c]\npath_file = "{secret}"\n[models.shop]\n')
    assert load(path, {}).catalogues["c"].path == SECRET
    assert load(path, {"OMDML_CATALOGUES__c__PATH": "items"}).catalogues["c"].path == "items"


def test_the_address_of_an_index_can_be_in_a_file_and_its_password_is_not_shown(tmp_path):
    pytest.importorskip("psycopg")
    path, address = tmp_path / "omdml.toml", tmp_path / "address"
    address.write_text(f"postgresql://node:{SECRET}@db.internal/vectors#shop_index\n")
    path.write_text(f'[catalogues.c]\npath = "items"\n[models.shop]\ncandidates_file = "{address}"\n')
    loaded = load(path, {})
    assert SECRET in loaded.models["shop"].candidates
    assert SECRET not in repr(loaded)
    index = index_of_candidates("shop", loaded.models["shop"].candidates)
    assert str(index) == "shop_index in postgresql://db.internal/vectors"
    with pytest.raises(ConfigurationError, match=r"models\.shop\.candidates 'mongodb://db': expected one of") as caught:
        index_of_candidates("shop", f"mongodb://node:{SECRET}@db")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["12345678901234567", "true", "0.5", '"quoted"', "#hash"])
def test_a_password_of_the_environment_is_taken_as_it_is(text):
    environment = {f"OMDML_LOG__{name.upper()}": value for name, value in KAFKA.items()}
    assert load(None, environment | {"OMDML_LOG__SASL_PLAIN_PASSWORD": text}).log.sasl_plain_password == text


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read (No such file or directory)"), (b" \n", "the file is empty"), (b"\xff", "it is not text")],
)
def test_a_file_without_a_secret_in_it_is_refused_by_its_name(tmp_path, content, says):
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        load(None, {"OMDML_NODE__TOKEN_FILE": str(path)})
    assert f"node.token_file '{path}'" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "text", [SECRET, f"redis://u:{SECRET}@h/0", f"/{SECRET}", f"u:{SECRET}@h", SECRET * 300, f"{SECRET}\0"]
)
@pytest.mark.parametrize("option", ["NODE__TOKEN", "STORE__URL", "LOG__SASL_PLAIN_PASSWORD", "CATALOGUES__c__PATH"])
def test_a_secret_in_place_of_the_name_of_its_file_is_not_shown(option, text):
    with pytest.raises(ConfigurationError) as caught:
        load(None, {f"OMDML_{option}_FILE": text})
    assert SECRET not in str(caught.value)
    assert option.replace("__", ".").replace("OMDML_", "").lower() in str(caught.value).lower()


ADDRESS, SERVER = f"redis://u:{SECRET}@h/0", f"u:{SECRET}@h:9092"
MISPLACED = [
    ("file", "log.path", [ADDRESS]),
    ("file", "log.letters", [ADDRESS]),
    ("kafka", "log.letters", [ADDRESS]),
    ("kafka", "log.topic", [ADDRESS]),
    ("kafka", "log.servers", [ADDRESS, SERVER, f"h:9092,{SERVER}"]),
    *[
        ("kafka", option, [ADDRESS, SERVER, SECRET])
        for option in (
            "log.kind", "log.security_protocol", "log.sasl_mechanism", "log.partitioner", "worker.bind", "node.bind",
            "worker.memory_mb", "guard.on"
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "option", "text"), [(kind, option, text) for kind, option, texts in MISPLACED for text in texts]
)
def test_a_secret_in_an_option_that_takes_none_is_refused_and_not_shown(kind, option, text):
    section, name = option.split(".")
    table = {"log": {"kind": kind}}
    table.setdefault(section, {})[name] = text
    with pytest.raises(ConfigurationError, match=re.escape(option)) as caught:
        load(None, {}, {**MODEL, **table})
    assert SECRET not in str(caught.value)


def test_a_secret_that_is_given_both_ways_is_refused(secret):
    with pytest.raises(ConfigurationError, match="node has token and token_file: expected one of them"):
        load(None, {"OMDML_NODE__TOKEN": SECRET, "OMDML_NODE__TOKEN_FILE": secret})


def test_only_what_may_be_secret_is_read_from_files(secret):
    with pytest.raises(ConfigurationError, match="node: no option 'bind_file'"):
        load(None, {"OMDML_NODE__BIND_FILE": secret})


@pytest.mark.parametrize(
    "log",
    [
        {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_plain_username": "u"},
        {"security_protocol": "SASL_SSL", "sasl_plain_username": "u", "sasl_plain_password": SECRET},
        {"sasl_plain_password": SECRET},
        {"ssl_cafile": "ca.pem"},
        {**KAFKA, "security_protocol": "SASL_PLAINTEXT", "ssl_password": SECRET},
        {"security_protocol": "SSL", "ssl_keyfile": "client.key"},
    ],
)
def test_options_that_need_each_other_or_do_nothing_are_refused_and_not_shown(log):
    with pytest.raises(ConfigurationError, match=r"log\.s") as caught:
        load(None, {}, {**MODEL, "log": {**log, "kind": "kafka"}})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"redis://u:{SECRET}@127.0.0.1:1/0",
        f"redis://u:{SECRET}@127.0.0.1:1/0?ssl_ca_certs=x#shop",
        f"redis://:{SECRET}@127.0.0.1:nonsense",
        f"redis://127.0.0.1:1?password={SECRET}",
        f"redis://127.0.0.1:1?password={SECRET}@x",
        f"redis://u:@{SECRET}@127.0.0.1:1",
        f"redis://u:?{SECRET}@127.0.0.1:1",
        f"redis://u:#{SECRET}@127.0.0.1:1",
        f"redis://u:/{SECRET}@127.0.0.1:1/0#shop",
        f"rediss://u:{SECRET}@127.0.0.1:1?no_such_option=1",
        f"REDIS://u:{SECRET}@127.0.0.1:1",
        f"redis://u:{SECRET}@[127.0.0.1",
        f"mysql://u:{SECRET}@127.0.0.1:1",
    ],
)
def test_no_error_about_an_address_shows_its_password(url):
    for address in (url, f"{url}#shop"):
        assert SECRET not in masked(address)
    texts = []
    for connect in (lambda: open_store(url).models(), lambda: open_catalogue(url if "#" in url else f"{url}#shop")):
        with pytest.raises(OmdmlError) as caught:
            connect()
        texts.append(str(caught.value))
    for table in ({"store": url}, {"catalogues": url}, {"catalogues": {"c": url}}, {"store": {"url": url}}):
        try:
            texts.append(repr(load(None, {}, table)))
        except ConfigurationError as error:
            texts.append(str(error))
    assert SECRET not in "".join(texts)


def test_a_printed_configuration_and_findings_about_it_show_no_secret(tmp_path):
    catalogue(tmp_path / "items")
    log = {
        **KAFKA,
        "servers": "127.0.0.1:1",
        "start_timeout_s": 0.5,
        "sasl_plain_password": SECRET,
        "ssl_password": SECRET,
    }
    table = {**MODEL, "catalogues": {"c": {"path": str(tmp_path / "items")}}, "log": log, "node": {"token": SECRET}}
    loaded = load(None, {}, {**table, "store": {"url": f"redis://u:{SECRET}@127.0.0.1:1"}})
    findings = list(examine(loaded))
    assert {finding.check for finding in findings if not finding.well} >= {"log", "store"}
    assert SECRET not in f"{loaded!r}{loaded}{findings}"


@pytest.mark.parametrize(
    "command", ["worker", "node", "doctor", "feed", "--help", "catalogue build", "replay --model shop"]
)
def test_no_command_prints_a_secret_however_it_fails(tmp_path, monkeypatch, command):
    catalogue(tmp_path / "items")
    path = tmp_path / "omdml.toml"
    lines = "".join(f'{name} = "{value}"\n' for name, value in KAFKA.items())
    path.write_text(
        f'[log]\n{lines}servers = "127.0.0.1:1"\nstart_timeout_s = 0.5\nsasl_plain_password = "{SECRET}"\n'
        f'[store]\nurl = "redis://u:{SECRET}@127.0.0.1:1"\n[catalogues.c]\npath = "items"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 3\n'
    )
    arguments = command.split() + ([f"redis://u:{SECRET}@127.0.0.1:1#c", "items.npz"] if "build" in command else [])
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, arguments, env={"OMDML_NODE__TOKEN": SECRET, "COLUMNS": "500"})
    assert done.output
    assert SECRET not in done.output
    # An error of omdml's ends the command with an exit code. Any other exception would be a traceback.
    assert done.exception is None or isinstance(done.exception, SystemExit)


def test_a_running_node_shows_its_token_nowhere(tmp_path):
    catalogue(tmp_path / "items")
    port = free_port()
    (tmp_path / "token").write_text(SECRET)
    (tmp_path / "omdml.toml").write_text(
        f'[node]\nbind = "127.0.0.1:{port}"\ntoken_file = "token"\n[catalogues.c]\npath = "items"\n'
        '[models.shop]\nlearner = "lomdml"\nrank = 3\n'
    )
    node = ForkedProcess(tmp_path, "node", name="node")
    try:
        wait_for(lambda: "node_started" in node.said, "the node", 60.0, node)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            texts = [client.get(path).text for path in ("/metrics", "/schema", "/models", "/readyz", "/nowhere")]
            for token in ("none", SECRET, f"{SECRET}x"):
                answer = client.post("/feedback", content=b"no event", headers={"authorization": f"Bearer {token}"})
                texts.append(f"{answer.status_code} {answer.text} {answer.headers}")
        assert texts[-2].startswith("400")
    finally:
        node.stop()
    assert SECRET not in "".join(texts) + node.said
