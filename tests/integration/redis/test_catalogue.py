"""A catalogue in a real Redis and a real Valkey."""

from pathlib import Path

import numpy as np
import pytest
import redis
from numpy.testing import assert_array_equal

from deploy.local import Server, ValkeyServer
from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.catalogues.redis import catalogue, upload
from omdml.streams.catalogues.redis.catalogue import RedisCatalogue
from omdml.streams.catalogues.redis.upload import upload_catalogue
from omdml.streams.protocols.catalogue import Catalogue

RANDOM = np.random.default_rng(0)
RAW = {"color": RANDOM.normal(size=(25, 3)), "text": RANDOM.normal(size=(25, 12))}
IDS = [f"sku {number}: größe" for number in range(25)]
SETS = {f"photo {number}": IDS[number : number + 3] for number in range(6)}
ONE = {"color": np.array([[9.0, 9.0, 9.0]]), "text": np.array([[0.5] * 12])}


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (catalogue, upload):
        monkeypatch.setattr(module, "BATCH_ITEMS", 4)


@pytest.fixture
def shop(tmp_path: Path) -> MappedCatalogue:
    return build_catalogue(tmp_path / "shop", RAW, scaling={"text": "unit"}, ids=IDS, sets=SETS)


def _is_equal(catalogue: Catalogue, expected: Catalogue) -> bool:
    assert catalogue.generation == expected.generation
    assert (dict(catalogue.dims), list(catalogue.ids)) == (dict(expected.dims), list(expected.ids))
    for name, matrix in catalogue.features.items():
        assert_array_equal(matrix, expected.features[name])
    assert list(catalogue.sets) == list(expected.sets)
    for name, rows in catalogue.sets.items():
        assert_array_equal(rows, expected.sets[name])
    return True


def test_an_uploaded_catalogue_opens_as_the_one_it_came_from(shop: MappedCatalogue, redis_url: str) -> None:
    assert upload_catalogue(shop, redis_url, "shop") == 25

    opened = open_catalogue(f"{redis_url}#shop")

    assert _is_equal(opened, shop)
    assert _is_equal(open_catalogue(redis_url.replace("redis://", "valkey://"), "shop"), shop)
    assert_array_equal(opened.rows([IDS[24], "nobody"]), [24, -1])
    assert_array_equal(opened.scale(ONE)["color"], shop.scale(ONE)["color"])
    for matrix in opened.features.values():
        assert matrix.flags.c_contiguous
        assert not matrix.flags.writeable


def test_keys_are_where_any_client_finds_them(shop: MappedCatalogue, redis_url: str) -> None:
    upload_catalogue(shop, redis_url, "shop")
    client = redis.Redis.from_url(redis_url)

    assert client.get("omdml:catalogue:shop") == shop.generation.encode()
    blob = client.hget(f"omdml:item:shop:{shop.generation}:{IDS[3]}", "color")
    assert isinstance(blob, bytes)
    assert_array_equal(np.frombuffer(blob, "<f4"), shop.features["color"][3])


def test_added_items_are_seen_after_a_refresh_and_old_rows_stay(shop: MappedCatalogue, redis_url: str) -> None:
    upload_catalogue(shop, redis_url, "shop")
    opened = RedisCatalogue(f"{redis_url}#shop")
    before = opened.features["text"]

    for number in range(9):
        add_items(shop.path, ONE, ids=[f"new {number}"], sets={f"album {number}": [f"new {number}", IDS[0]]})
    shop.refresh()
    assert upload_catalogue(shop, redis_url, "shop") == 9
    assert opened.refresh() == 9

    assert _is_equal(opened, shop)
    assert opened.first == RedisCatalogue(f"{redis_url}#shop").first == shop.first == 25
    assert_array_equal(before, shop.features["text"][:25])
    assert opened.refresh() == 0


def test_an_upload_that_ended_early_is_not_opened_and_goes_on_where_it_ended(
    shop: MappedCatalogue, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = iter([upload._upload] * 3)
    monkeypatch.setattr(upload, "_upload", lambda *given: next(batches)(*given))
    with pytest.raises(StopIteration):
        upload_catalogue(shop, redis_url, "shop")
    with pytest.raises(CatalogueError, match=r"no catalogue 'shop'.*: make one with `omdml catalogue build`"):
        RedisCatalogue(redis_url, "shop")
    monkeypatch.undo()

    assert upload_catalogue(shop, redis_url, "shop") == 25 - 12
    assert _is_equal(RedisCatalogue(redis_url, "shop"), shop)


def test_an_id_listed_twice_counts_once(shop: MappedCatalogue, redis_url: str) -> None:
    upload_catalogue(shop, redis_url, "shop")
    keys, client = f"omdml:catalogue:shop:{shop.generation}", redis.Redis.from_url(redis_url)
    client.rpush(f"{keys}:ids", *IDS[5:20])
    client.rpush(f"{keys}:sets", *client.lrange(f"{keys}:sets", 1, 4))

    assert _is_equal(RedisCatalogue(redis_url, "shop"), shop)


def test_a_set_of_items_that_are_not_there_is_named(shop: MappedCatalogue, redis_url: str) -> None:
    upload_catalogue(shop, redis_url, "shop")
    entry = '{"set": "photo 9", "items": ["nobody"]}'
    redis.Redis.from_url(redis_url).rpush(f"omdml:catalogue:shop:{shop.generation}:sets", entry)

    with pytest.raises(CatalogueError, match="set 'photo 9' names item 'nobody'"):
        RedisCatalogue(redis_url, "shop")


def test_an_older_generation_stays_readable(shop: MappedCatalogue, redis_url: str, tmp_path: Path) -> None:
    upload_catalogue(shop, redis_url, "shop")
    newer = build_catalogue(tmp_path / "newer", RAW, ids=IDS)
    upload_catalogue(newer, redis_url, "shop")

    assert _is_equal(RedisCatalogue(redis_url, "shop"), newer)
    assert _is_equal(RedisCatalogue(redis_url, "shop", generation=shop.generation), shop)


@pytest.mark.parametrize(
    ("blob", "expected"),
    [
        (None, "modality 'color' is missing"),
        (b"1234567", "modality 'color' has 7 bytes"),
        (np.array([1, np.nan, 3], np.float32).tobytes(), "modality 'color' holds nan in column 1"),
    ],
)
def test_a_damaged_item_is_named(shop: MappedCatalogue, redis_url: str, blob: bytes | None, expected: str) -> None:
    upload_catalogue(shop, redis_url, "shop")
    client = redis.Redis.from_url(redis_url)
    key = f"omdml:item:shop:{shop.generation}:{IDS[7]}"
    client.hdel(key, "color") if blob is None else client.hset(key, "color", blob)

    with pytest.raises(CatalogueError, match=f"item 'sku 7: größe', {expected}.* expected 3 finite float32"):
        RedisCatalogue(redis_url, "shop")


def test_a_bad_item_added_later_leaves_what_was_read_as_it_is(shop: MappedCatalogue, redis_url: str) -> None:
    upload_catalogue(shop, redis_url, "shop")
    opened = RedisCatalogue(redis_url, "shop")
    client = redis.Redis.from_url(redis_url)
    client.rpush(f"omdml:catalogue:shop:{shop.generation}:ids", "ghost")

    with pytest.raises(CatalogueError, match="'ghost', modality 'color' is missing"):
        opened.refresh()
    assert _is_equal(opened, shop)

    for name, matrix in shop.features.items():
        client.hset(f"omdml:item:shop:{shop.generation}:ghost", name, matrix[0].tobytes())
    assert opened.refresh() == 1
    assert_array_equal(opened.features["color"][25], shop.features["color"][0])


@pytest.fixture
def mapped_shop(tmp_path: Path) -> MappedCatalogue:
    return build_catalogue(tmp_path / "mapped", RAW, ids=IDS, sets=SETS, mapped=True)


def test_mapped_coordinates_are_uploaded_with_their_map(mapped_shop: MappedCatalogue, redis_url: str) -> None:
    upload_catalogue(mapped_shop, redis_url, "shop")

    opened, expected = RedisCatalogue(redis_url, "shop"), mapped_shop.in_coordinates("mapped")

    assert _is_equal(opened, mapped_shop)
    assert _is_equal(opened.in_coordinates("mapped"), expected)
    for name, matrix in opened.in_coordinates("mapped").features.items():
        assert_array_equal(opened.in_coordinates("mapped").scale(ONE)[name], expected.scale(ONE)[name])
        assert not matrix.flags.writeable


def test_coordinates_that_a_client_leaves_out_are_made_by_whoever_reads(
    mapped_shop: MappedCatalogue, redis_url: str
) -> None:
    upload_catalogue(mapped_shop, redis_url, "shop")
    opened, client = RedisCatalogue(redis_url, "shop"), redis.Redis.from_url(redis_url)
    for name, matrix in mapped_shop.features.items():
        client.hset(f"omdml:item:shop:{mapped_shop.generation}:guest", name, matrix[3].tobytes())
    client.rpush(f"omdml:catalogue:shop:{mapped_shop.generation}:ids", "guest")

    assert opened.refresh() == 1
    (coordinates,) = opened.in_coordinates("mapped").features.values()
    np.testing.assert_allclose(coordinates[25], coordinates[3], atol=1e-6)
    assert _is_equal(opened.in_coordinates("mapped"), RedisCatalogue(redis_url, "shop").in_coordinates("mapped"))


def test_a_missing_or_foreign_map_is_reported(mapped_shop: MappedCatalogue, redis_url: str) -> None:
    upload_catalogue(mapped_shop, redis_url, "shop")
    client, key = redis.Redis.from_url(redis_url), f"omdml:catalogue:shop:{mapped_shop.generation}:map"
    client.append(key, b"more")
    with pytest.raises(CatalogueError, match="its map of coordinates has another sha256"):
        RedisCatalogue(redis_url, "shop")
    client.delete(key)
    with pytest.raises(CatalogueError, match="its map of coordinates is missing"):
        RedisCatalogue(redis_url, "shop")


@pytest.mark.parametrize("tail", ["", "#", "#two words", "#a:b"])
def test_a_url_without_a_usable_name_says_how_to_write_one(redis_url: str, tail: str) -> None:
    with pytest.raises(CatalogueError, match=r"redis://host:6379/0#shop"):
        open_catalogue(redis_url + tail)


def test_a_server_out_of_reach_is_reported_without_the_password(valkey_server: Server, shop: MappedCatalogue) -> None:
    address = valkey_server.address
    valkey_server.stop()

    with pytest.raises(CatalogueError, match=f"redis://{address}#shop: .*see that the server is up") as caught:
        open_catalogue(f"redis://user:secret@{address}#shop")
    assert "secret" not in str(caught.value)


def test_a_server_without_memory_left_is_reported(shop: MappedCatalogue) -> None:
    with (
        ValkeyServer(arguments=("--maxmemory", "1mb")) as server,
        pytest.raises(CatalogueError, match=r"maxmemory|OOM"),
    ):
        upload_catalogue(shop, server.url, "shop")
