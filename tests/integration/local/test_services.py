"""The servers of deploy/local behave as the other tests of this folder take for granted."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from kafka.errors import KafkaError

from deploy.local import KafkaServer, RedisServer, ServiceError, ValkeyServer
from tests.integration.local.messages import WAIT_S, read_one, send
from tests.support.processes import wait_for

ROOT = Path(__file__).parents[3]


def alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_broker_takes_and_returns_a_message(kafka: KafkaServer, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    send(kafka.servers, topic, b"click")
    assert read_one(kafka.servers, topic) == b"click"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_started_again_keeps_its_port_and_its_topic(
    kafka: KafkaServer, new_topic: Callable[..., str], end: str
) -> None:
    topic, servers = new_topic(partitions=2), kafka.servers
    send(servers, topic, b"before")

    getattr(kafka, end)()
    kafka.start()

    assert kafka.servers == servers
    assert read_one(servers, topic) == b"before"


def test_a_broker_with_passwords_takes_the_right_one_and_no_other() -> None:
    users = 'username="broker" password="b" user_broker="b" user_learner="right"'
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    options = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "learner", "sasl_plain_password": "right"}
    properties = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
    }
    with KafkaServer(protocol="SASL_PLAINTEXT", properties=properties, client_options=options) as broker:
        broker.create_topic("clicks", partitions=2)
        broker.client_options |= {"sasl_plain_password": "wrong", "bootstrap_timeout_ms": 1000}
        with pytest.raises(KafkaError):
            broker.create_topic("more")
        assert "Failed authentication" in broker.last_lines()


def test_a_redis_starts_again_on_its_port_with_what_it_acknowledged(any_redis: RedisServer) -> None:
    redis.Redis.from_url(any_redis.url).set("key", "value")
    before = any_redis.port, any_redis.pid

    any_redis.kill()
    any_redis.start()

    assert any_redis.port == before[0]
    assert any_redis.pid != before[1]
    assert redis.Redis.from_url(any_redis.url).get("key") == b"value"


def test_a_redis_can_start_again_as_if_new(any_redis: RedisServer) -> None:
    redis.Redis.from_url(any_redis.url).set("key", "value")
    any_redis.restart(keep_data=False)
    assert redis.Redis.from_url(any_redis.url).get("key") is None


def test_a_paused_redis_answers_nothing_until_it_goes_on(any_redis: RedisServer) -> None:
    client = redis.Redis(port=any_redis.port, socket_timeout=0.2, retry=None)
    any_redis.pause()
    with pytest.raises(redis.TimeoutError):
        client.ping()
    any_redis.resume()
    assert redis.Redis(port=any_redis.port).ping()


def test_the_next_test_gets_its_server_back(any_redis: RedisServer) -> None:
    """The tests above killed and paused it, and put keys into it; here it runs and is empty again."""
    assert redis.Redis.from_url(any_redis.url).dbsize() == 0
    any_redis.kill()


def test_redis_url_names_a_server_without_a_key(redis_url: str) -> None:
    assert redis.Redis.from_url(redis_url).dbsize() == 0


def test_closing_a_server_ends_it_and_removes_its_folder() -> None:
    with ValkeyServer(durable=False, arguments=("--maxmemory", "64mb")) as server:
        pid, folder = server.pid, server.folder
        assert redis.Redis(port=server.port).config_get("maxmemory") == {"maxmemory": str(64 * 2**20)}
    assert not alive(pid)
    assert not folder.exists()


def test_a_server_that_cannot_start_says_where_and_why_and_leaves_nothing() -> None:
    server = ValkeyServer(arguments=("--no-such-option", "1"))
    with pytest.raises(ServiceError, match=r"(?s)valkey at 127\.0\.0\.1:\d+: it ended .*no-such-option.*What to do:"):
        server.__enter__()
    assert not server.running
    assert not server.folder.name


def test_a_server_on_a_taken_port_is_refused(any_redis: RedisServer) -> None:
    with pytest.raises(ServiceError, match="another process listens on this port"):
        ValkeyServer(port=any_redis.port).start()


def test_a_server_outlives_the_thread_that_started_it() -> None:
    server = ValkeyServer(durable=False)
    starter = threading.Thread(target=server.start)
    starter.start()
    starter.join()
    try:
        assert redis.Redis(port=server.port).ping()
    finally:
        server.close()


def test_a_killed_parent_leaves_no_server() -> None:
    program = (
        "import sys; from deploy.local import ValkeyServer\n"
        "server = ValkeyServer(durable=False).start()\n"
        "print(server.pid, server.folder, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    parts = parent.stdout.readline().split()
    child, folder = int(parts[0]), Path(parts[1])
    assert alive(child)
    assert folder.is_dir()

    parent.kill()
    parent.communicate()

    wait_for(lambda: not alive(child), "the server of a killed parent to end")
    with ValkeyServer(durable=False):
        assert not folder.exists(), "the next server removes what was left"


# One after the other: both servers take the usual port if it is free.
@pytest.mark.xdist_group("usual_port")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_the_command_runs_services_until_it_is_told_to_end(end: signal.Signals) -> None:
    command = subprocess.Popen(
        [sys.executable, "-m", "deploy.local", "up", "valkey"],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    name, address = command.stdout.readline().split()
    client = redis.Redis.from_url(address)
    assert (name, client.ping()) == ("valkey", True)
    server = client.info("server")["process_id"]
    while "Ctrl-C ends" not in command.stdout.readline():
        assert command.poll() is None

    command.send_signal(end)
    _, progress = command.communicate(timeout=WAIT_S)

    assert "starting valkey ..." in progress
    assert command.returncode == 0
    assert not alive(server)
