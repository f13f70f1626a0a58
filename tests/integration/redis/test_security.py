"""Redis and Valkey with the users of deploy/redis.acl, Redis also behind TLS: enough rights, and no more."""

from __future__ import annotations

import pytest
import redis

from deploy.local import RedisServer, ValkeyServer, ports
from omdml.errors import ConfigurationError, OmdmlError, StoreError, StoreRefused
from omdml.streams.catalogues.redis.catalogue import RedisCatalogue
from omdml.streams.catalogues.redis.upload import upload_catalogue
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Written
from omdml.streams.stores.redis.store import RedisStore
from tests.support.learning.store_samples import checkpoint
from tests.support.pauses import _no_waiting  # noqa: F401
from tests.support.processes import ROOT
from tests.support.servers.certificates import Authority
from tests.support.shops import Shop
from tests.support.worlds import World, catalogue, events, learned_directly, run_until_idle

ACL = ROOT / "deploy" / "redis.acl"
OTHERS = "somebody:else"
FORBIDDEN = (
    f"GET {OTHERS}",
    f"SET {OTHERS} x",
    f"DEL {OTHERS}",
    "FLUSHALL",
    "KEYS *",
    "CONFIG GET *",
    "ACL LIST",
    "SHUTDOWN",
)


def password(user):
    return f"{user}-secret-4711"


@pytest.fixture(scope="module", params=[RedisServer, ValkeyServer])
def guarded(request, tmp_path_factory):
    """A server whose users are those of the file, and an administrator."""
    file = tmp_path_factory.mktemp("acl") / "users.acl"
    text = ACL.read_text()
    for user in ("worker", "node", "catalogue"):
        text = text.replace(f"{user.upper()}_PASSWORD", password(user))
    file.write_text(f"{text}user admin on >{password('admin')} ~* &* +@all\n")
    with request.param(durable=False, arguments=("--aclfile", str(file))) as server:
        yield server


@pytest.fixture
def url(guarded):
    """Empties the server; returns a function that gives the address for a user."""
    with redis.Redis.from_url(address(guarded, "admin")) as client:
        client.flushall()
        client.set(OTHERS, "untouched")
    return lambda user: address(guarded, user)


def address(server, user):
    return f"redis://{user}:{password(user)}@{server.address}"


def test_a_worker_learns_and_a_node_follows_it_with_the_rights_that_are_listed(tmp_path, url):
    world = World(tmp_path)
    world.store = RedisStore(url("worker"))
    worker = world.worker()
    world.send(*events(20))
    run_until_idle(worker)
    assert world.store.claim("shop").checkpoint.state == learned_directly(world, 20).to_bytes()
    followed = RedisStore(url("node"))
    assert followed.load("shop")[1].version == 20
    assert followed.history("shop")
    watch = followed.watch(["shop"])
    world.store.move("shop", 20, pin=True)
    assert watch.wait(10.0) == {"shop"}
    watch.close()
    again = world.store.claim("shop")
    assert world.store.replace(again.checkpoint, again.epoch, 0) is Written.ALREADY
    assert world.store.marks([]).replacements == 1
    world.store.delete("shop")
    assert "shop" not in world.store.models()


@pytest.mark.parametrize("user", ["node", "catalogue"])
def test_the_secret_is_read_by_workers_alone(url, user):
    assert len(RedisStore(url("worker")).secret()) == 32
    with redis.Redis.from_url(url(user)) as client:
        for command in ("GET omdml-secret", "SET omdml-secret x", "DUMP omdml-secret", "RENAME omdml-secret omdml:x"):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command.split())


def test_a_shop_of_many_versions_is_thinned_out_with_the_rights_that_are_listed(tmp_path, url):
    shop = Shop(tmp_path, store=RedisStore(url("worker")))
    for _ in range(60):
        shop.learn(5)
        shop.publish()
    assert len(shop.store.history("shop")) < 60


def test_a_catalogue_is_uploaded_by_its_user_and_read_by_the_others(tmp_path, url):
    upload_catalogue(catalogue(tmp_path / "items"), f"{url('catalogue')}#shop")
    for user in ("worker", "node"):
        assert len(RedisCatalogue(f"{url(user)}#shop").ids) == 120


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.claim("shop"),
        lambda store: store.move("shop", 0, pin=True),
        lambda store: store.move_mark(Partition("t", 0), None, 1),
        lambda store: store.delete("shop"),
        lambda store: store.secret(),
    ],
)
def test_a_nodes_user_can_write_nothing(tmp_path, url, write):
    shop = Shop(tmp_path, store=RedisStore(url("worker")))
    shop.publish()
    before = shop.store.current("shop")
    with pytest.raises(StoreRefused, match=r"give this user the rights that deploy/SECURITY\.md lists"):
        write(RedisStore(url("node")))
    assert shop.store.current("shop") == before


def test_a_right_that_a_script_misses_is_reported_like_any_other(guarded, url):
    store = RedisStore(url("worker"))
    epoch = store.claim("shop").epoch
    with redis.Redis.from_url(address(guarded, "admin")) as client:
        client.execute_command("ACL", "SETUSER", "worker", "-hset")
        try:
            with pytest.raises(StoreRefused, match=r"give this user the rights that deploy/SECURITY\.md lists"):
                store.save(checkpoint(1), epoch)
        finally:
            client.execute_command("ACL", "SETUSER", "worker", "+hset")
    assert store.save(checkpoint(1), epoch) is Written.STORED


def test_users_touch_only_keys_of_the_prefix_and_run_nothing_that_hurts(url):
    for user in ("worker", "node", "catalogue"):
        with redis.Redis.from_url(url(user)) as client:
            for command in FORBIDDEN:
                with pytest.raises(redis.exceptions.NoPermissionError):
                    client.execute_command(*command.split())
    with pytest.raises(StoreRefused):
        RedisStore(f"{url('worker')}?prefix=other").claim("shop")


def test_a_worker_that_is_not_let_in_ends_and_says_what_to_correct(tmp_path, url):
    world = World(tmp_path)
    world.store = RedisStore(url("node"))
    worker = world.worker()
    world.send(*events(1))
    with pytest.raises(StoreRefused, match="rights"):
        worker.run()


def test_a_wrong_password_is_reported_at_once_and_not_shown(guarded):
    store = RedisStore(f"redis://worker:guessed-in-vain@{guarded.address}")
    with pytest.raises(StoreRefused, match=r"correct user and password in store\.url") as caught:
        store.models()
    assert "guessed" not in str(caught.value)


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A redis-server with TLS that asks for a client's certificate (the wheel's Valkey is built without TLS)."""
    folder, port = tmp_path_factory.mktemp("certificates"), ports.free_port()
    authority = Authority(folder)
    own, client = authority.issue("server", "IP:127.0.0.1"), authority.issue("client")
    files = ("--tls-cert-file", own.certificate, "--tls-key-file", own.key, "--tls-ca-cert-file", authority.certificate)
    with RedisServer(durable=False, arguments=("--tls-port", str(port), *map(str, files))):
        own_side = f"ssl_certfile={client.certificate}&ssl_keyfile={client.key}"
        yield port, authority, own_side


def test_a_store_and_a_catalogue_behind_tls(tls, tmp_path):
    port, authority, client = tls
    url = f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority.certificate}&{client}"
    shop = Shop(tmp_path, store=RedisStore(url))
    shop.publish()
    assert RedisStore(url).load("shop")[1].version == 0
    watch = RedisStore(url).watch(["shop"])
    shop.store.move("shop", 0, pin=True)
    assert watch.wait(10.0) == {"shop"}
    watch.close()
    upload_catalogue(shop.catalogue, f"{url}#shop")
    assert len(RedisCatalogue(f"{url}#shop").ids) == 120


@pytest.mark.parametrize(
    ("host", "options", "says"),
    [
        ("127.0.0.1", "{client}", "?ssl_ca_certs=ca.pem"),
        ("127.0.0.1", "ssl_ca_certs={other}&{client}", "?ssl_ca_certs=ca.pem"),
        ("localhost", "ssl_ca_certs={ca}&{client}", "name the server in store.url as its certificate does"),
        ("127.0.0.1", "ssl_ca_certs={ca}", "?ssl_certfile=client.pem&ssl_keyfile=client.key"),
        ("127.0.0.1", "ssl_ca_certs=nowhere.pem", "ssl_ca_certs=nowhere.pem: no such file"),
    ],
)
def test_a_certificate_that_does_not_fit_is_reported_at_once_with_what_to_do(tls, tmp_path, host, options, says):
    port, authority, client = tls
    other = Authority(tmp_path, "other").certificate
    asked = options.format(ca=authority.certificate, other=other, client=client)
    # A server that asks for a certificate may just break the handshake off, as one that stops does.
    with pytest.raises((StoreError, ConfigurationError)) as caught:
        RedisStore(f"rediss://{host}:{port}?{asked}").models()
    assert says in str(caught.value)
    assert isinstance(caught.value, OmdmlError)
