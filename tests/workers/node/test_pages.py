"""Pages of an answer, and ids that are never answered."""

from __future__ import annotations

import pytest

from tests.support.shops import Shop, asking, refused
from tests.support.worlds import ITEMS


@pytest.fixture
def client(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    with shop.serving() as node, asking(node) as client:
        yield client


def ids_found(client, **options):
    """Search with these options; returns the ids in the answer."""
    response = client.post("/search", json={"id": "i5", **options})
    assert response.status_code == 200, response.text
    return [item["id"] for item in response.json()["items"]]


def test_pages_are_parts_of_one_long_answer(client):
    whole = ids_found(client, k=ITEMS)
    assert len(whole) == ITEMS - 1
    assert [ids_found(client, k=7, offset=offset) for offset in (0, 7, 14)] == [whole[:7], whole[7:14], whole[14:21]]
    assert ids_found(client, k=7, offset=ITEMS - 3) == whole[ITEMS - 3 :]
    assert ids_found(client, k=7, offset=ITEMS) == []
    assert [item["id"] for item in client.get("/search?id=i5&k=3&offset=4").json()["items"]] == whole[4:7]


def test_excluded_ids_are_passed_over_and_the_answer_stays_full(client):
    whole = ids_found(client, k=ITEMS)
    excluded = [whole[0], whole[2], whole[9], "i5", "nobody", whole[0]]
    expected = [name for name in whole if name not in excluded]
    assert ids_found(client, k=8, exclude=excluded) == expected[:8]
    assert ids_found(client, k=8, exclude=excluded, offset=5) == expected[5:13]
    assert ids_found(client, k=8, exclude=whole) == []


@pytest.mark.parametrize(
    ("options", "reason", "expected"),
    [
        ({"offset": -1}, "bad_k", "offset is -1, expected 0 to 9990"),
        ({"k": 1, "offset": 10_000}, "bad_k", "offset is 10000, expected 0 to 9999"),
        ({"offset": "x"}, "bad_k", "offset"),
        ({"exclude": ["i1"] * 1_001}, "invalid", "1001 ids to exclude, expected at most 1000"),
        ({"exclude": "i1"}, "invalid", "exclude"),
        ({"exclde": ["i1"]}, "unknown_parameter", "did you mean 'exclude'"),
    ],
)
def test_options_that_make_no_page_are_refused(client, options, reason, expected):
    assert expected in refused(client.post("/search", json={"id": "i5", **options}), 400, reason)
