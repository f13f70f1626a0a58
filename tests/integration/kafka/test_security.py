"""Kafka behind SASL and TLS, with no more rights than deploy/SECURITY.md lists: all of it works, and nothing else."""

from __future__ import annotations

import json
import time

import httpx
import kafka.errors
import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, TopicPartition

from omdml.errors import SourceRefused
from omdml.streams.kafka import internals
from omdml.streams.kafka.options import KafkaOptions
from omdml.streams.kafka.reading.source import KafkaSource
from omdml.streams.kafka.sink import KafkaSink
from omdml.streams.kafka.topic import create_topic
from omdml.workers.cli import main
from tests.support.forks import ForkedProcess
from tests.support.processes import free_port, wait_for
from tests.support.servers.certificates import Authority
from tests.support.servers.secured import SecuredKafka, password
from tests.support.worlds import catalogue, events

# One process runs them, with one broker.
pytestmark = pytest.mark.xdist_group("secured broker")
TOPIC = "feedback"
OPERATORS = (
    "doctor", "status", "letters list", "letters resend", "models copy shop other", "topics status", "topics rehome",
    "replay --model shop --publish --replace", "forget shop --user 42 --yes --accept-gap",
    "learn-on shop --until 2000-01-01 --yes", "topics rewind --yes",
)  # fmt: skip


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with SecuredKafka(tmp_path_factory.mktemp("certificates")) as server:
        server.give_rights()
        creator = KafkaOptions(**server.options("creator"))
        assert create_topic(creator, TOPIC)
        assert create_topic(creator, f"{TOPIC}.letters")
        yield server


@pytest.fixture
def place(tmp_path, secured):
    """Writes the configuration of a user and answers the arguments that name it; passwords are in files."""
    catalogue(tmp_path / "items")
    port = free_port()

    def configure(user, **changes):
        (tmp_path / f"{user}.password").write_text(f"{password(user)}\n")
        log = {"kind": "kafka", "topic": TOPIC, "letters": f"{TOPIC}.letters", **secured.options(user, **changes)}
        log["sasl_plain_password_file"] = str(tmp_path / f"{user}.password")
        del log["sasl_plain_password"]
        other_sections = f'[node]\nbind = "127.0.0.1:{port}"\n[catalogues.items]\npath = "items"\n'
        other_sections += "".join(f'[models.{name}]\nlearner = "lomdml"\nrank = 3\n' for name in ("shop", "other"))
        other_sections += "[guard]\non = false\n"
        lines = "".join(f"{option} = {json.dumps(value)}\n" for option, value in log.items())
        (tmp_path / f"{user}.toml").write_text(f"[log]\n{lines}{other_sections}")
        return "-c", f"{user}.toml"

    configure.folder, configure.url = tmp_path, f"http://127.0.0.1:{port}"
    return configure


def letters(secured):
    """How many dead letters there are."""
    reader = KafkaConsumer(bootstrap_servers=secured.servers, **secured.client_options)
    try:
        (end,) = reader.end_offsets([TopicPartition(f"{TOPIC}.letters", 0)]).values()
        return end
    finally:
        reader.close()


@pytest.fixture
def command(place, monkeypatch):
    """Runs an omdml command that ends by itself in this process; returns exit code and output."""
    monkeypatch.chdir(place.folder)

    def run_here(*arguments):
        done = CliRunner().invoke(main, list(arguments))
        return done.exit_code, done.output

    return run_here


def run(folder, *arguments):
    """Runs an omdml command to its end; returns exit code and output."""
    process = ForkedProcess(folder, *arguments, name=f"{arguments[0]}-{time.monotonic_ns()}")
    return process.wait(60.0), process.said


def test_every_command_but_the_router_works_with_the_rights_that_are_listed(place, secured, command):
    (place.folder / "events.jsonl").write_bytes(b"\n".join(events(30)) + b"\n")
    code, output = command("feed", "events.jsonl", *place("node"))
    assert (code, "refused 0" in output) == (0, True), output
    code, output = command("topics", "create", *place("creator"))
    assert (code, "exists already with 1 partition, nothing was changed" in output) == (0, True), output
    node = ForkedProcess(place.folder, "node", *place("node"), name="node")
    worker = ForkedProcess(place.folder, "worker", *place("worker"), name="worker")
    try:

        def version():
            models = httpx.get(f"{place.url}/models", verify=False).json()["models"]
            return next((model.get("version") for model in models if model["model"] == "shop"), None)

        wait_for(lambda: "node_started" in node.said, "the node", 60.0, node)
        accepted = httpx.post(f"{place.url}/feedback", content=next(events(1, seed=5)))
        assert accepted.status_code == 202, accepted.text
        sink = KafkaSink(KafkaOptions(**secured.options("node")), topic=TOPIC)
        sink.send(b"no event", "shop")
        sink.close()
        wait_for(lambda: version() == 31, "31 events learned", 60.0, worker)
        wait_for(lambda: letters(secured), "the letter about the bad one", 60.0, worker)
        assert worker.stop() == 0, worker.said
    finally:
        node.close()
        worker.close()
    code, output = command("archive", "--to", "archive", *place("archiver"))
    assert (code, "records archived" in output) == (0, True), output
    operator = place("operator")
    for message in OPERATORS:
        code, output = command(*message.split(), *operator)
        assert code == 0, (message, output)
    # A model of dca can be summed up from the archive.
    path = place.folder / operator[1]
    path.write_text(path.read_text().replace('learner = "lomdml"', 'learner = "dca"\ncoordinates = "features"'))
    code, output = command("bootstrap", "--input", "archive", "--model", "shop", "--processes", "1", *operator)
    assert code == 0, output


def test_an_archiver_may_neither_send_events_nor_read_letters(place, secured, command):
    (place.folder / "one.jsonl").write_bytes(next(events(1, seed=7)) + b"\n")
    for line in ("feed one.jsonl", "letters list"):
        code, output = command(*line.split(), *place("archiver"))
        assert code == 3, (line, output)
        assert "give archiver the rights (acls)" in output.lower(), output


def test_a_full_buffer_of_events_that_may_not_be_written_names_the_right(secured):
    sink = KafkaSink(KafkaOptions(**secured.options("archiver")), topic=TOPIC, buffer_bytes=2000, block_s=20.0)

    def send_until_full():
        for _ in range(10):
            sink.send(b"event", "shop")

    for attempt in (send_until_full, sink.close):
        with pytest.raises(SourceRefused, match=r"Give archiver the rights \(ACLs\)"):
            attempt()


def test_a_router_works_with_the_rights_that_are_listed(place, secured, command):
    admin = KafkaOptions(**secured.options("admin"))
    assert create_topic(admin, "clicks")
    sink = KafkaSink(admin, topic="clicks")
    sink.send(next(events(1, seed=9)))
    sink.close()
    # Events came by another way before, perhaps those of another test.
    options = ("--from", "clicks", "--begin", "beginning", *place("router"))
    router = ForkedProcess(place.folder, "route", *options, name="router")
    try:
        wait_for(lambda: "keyed=1" in router.said, "one event routed", 60.0, router)
        assert router.stop() == 0, router.said
    finally:
        router.close()
    # And an operator's doctor may look at that topic as well.
    _, output = command("doctor", *place("operator"))
    assert "topic 'clicks' has one copy" in " ".join(output.split()), output


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sasl_plain_password": "wrong"}, "rejects user 'worker' with SCRAM-SHA-512"),
        ({"sasl_plain_username": "nobody"}, "rejects user 'nobody'"),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, "correct log.sasl_plain_username, log.sasl_plain_password or log.sasl_m"),
        ({"ssl_cafile": None}, "set log.ssl_cafile to the PEM file of the authority that signed their certificate"),
        ({"ssl_cafile": "other"}, "set log.ssl_cafile to the PEM file of the authority that signed their certificate"),
        ({"ssl_cafile": "nowhere.pem"}, "log.ssl_cafile nowhere.pem: cannot be read (No such file or directory)"),
        ({"servers": "localhost"}, "name the brokers in log.servers as their certificate does"),
        ({"user": "stranger"}, "give stranger the rights (ACLs) that deploy/SECURITY.md lists"),
    ],
)
@pytest.mark.parametrize(
    "opened",
    [
        pytest.param(lambda options: KafkaSource(options, topic=TOPIC, group="omdml"), id="source"),
        pytest.param(lambda options: KafkaSink(options, topic=TOPIC), id="sink"),
        pytest.param(lambda options: create_topic(options, "another"), id="create"),
    ],
)
def test_who_is_not_let_in_is_told_at_once_what_to_correct(secured, tmp_path, opened, changes, says):
    changes = dict(changes)
    if changes.get("ssl_cafile") == "other":
        changes["ssl_cafile"] = str(Authority(tmp_path, "other").certificate)
    if changes.get("servers"):
        changes["servers"] = f"localhost:{secured.port}"
    options = KafkaOptions(**secured.options(changes.pop("user", "worker"), **changes), start_timeout_s=600.0)
    with pytest.raises(SourceRefused) as caught:
        opened(options)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert password("worker") not in str(caught.value)


def test_the_client_itself_tells_nobody_that_a_password_is_wrong(secured):
    options = KafkaOptions(**secured.options("worker", sasl_plain_password="guessed-in-vain")).client()
    with pytest.raises(kafka.errors.KafkaTimeoutError) as caught:
        internals.make_client(KafkaConsumer, **{**options, "bootstrap_timeout_ms": 2000})
    assert "uthentication" not in str(caught.value)


def test_plain_passwords_over_tls_are_let_in_too(secured):
    options = KafkaOptions(**secured.options("worker", sasl_mechanism="PLAIN"))
    source = KafkaSource(options, topic=TOPIC, group="omdml")
    assert source.partitions == 1
    source.close()


def test_a_broker_that_asks_for_certificates_lets_in_only_those_it_trusts(tmp_path):
    stranger = Authority(tmp_path, "other").issue("stranger")
    others = {"ssl_certfile": str(stranger.certificate), "ssl_keyfile": str(stranger.key)}
    with SecuredKafka(tmp_path, clients="required") as server:
        assert create_topic(KafkaOptions(**server.options("admin")), TOPIC)
        KafkaSource(KafkaOptions(**server.options("admin")), topic=TOPIC, group="omdml").close()
        for own_side, says in (
            (dict.fromkeys(others), "set log.ssl_certfile and log.ssl_keyfile: they ask for"),
            (others, "set log.ssl_certfile and log.ssl_keyfile to a certificate of an authority that they trust"),
        ):
            options = KafkaOptions(**server.options("admin", **own_side), start_timeout_s=600.0)
            with pytest.raises(SourceRefused, match=says):
                KafkaSource(options, topic=TOPIC, group="omdml")


def test_a_worker_whose_group_is_not_its_own_ends_and_says_so(place):
    path = place.folder / place("worker")[1]
    path.write_text(path.read_text().replace("[log]", '[log]\ngroup = "theirs"'))
    code, output = run(place.folder, "worker", "-c", path.name)
    assert code == 3, output
    assert "GroupAuthorizationFailedError; give worker the rights (ACLs)" in output.splitlines()[-1]


def test_a_wrong_password_ends_every_command_with_one_sentence(place):
    for user, command in (("node", "node"), ("worker", "worker"), ("creator", "topics create"), ("node", "doctor")):
        arguments = place(user)
        (place.folder / f"{user}.password").write_text("guessed-in-vain")
        code, output = run(place.folder, *command.split(), *arguments)
        assert code == (1 if command == "doctor" else 3), output
        assert "guessed-in-vain" not in output
        if command != "doctor":
            assert output.splitlines()[-1].startswith("omdml: Kafka at 127.0.0.1"), output
            assert "correct log.sasl_plain_username, log.sasl_plain_password" in output
