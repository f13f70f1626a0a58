"""Searches that come at once: one scan answers many of them, and each gets the same answer as alone."""

from __future__ import annotations

import asyncio
import math
import threading

import httpx
import pytest

from omdml.workers.node.galleries.gallery import AT_ONCE
from omdml.workers.node.searching import shared_scans
from omdml.workers.node.searching.answers import Paging
from omdml.workers.node.searching.options import PLAIN, SearchError
from omdml.workers.node.searching.shared_scans import Asked, SharedScans
from tests.support.shops import Shop, asking

ASKED = Asked(5, None, Paging(), PLAIN)


@pytest.fixture
def shop(tmp_path):
    shop = Shop(tmp_path)
    shop.learn()
    return shop


@pytest.fixture
def node(shop):
    with shop.serving() as node:
        yield node


@pytest.fixture(params=["on the event loop", "in threads"])
def scans(request, node, monkeypatch):
    """Of each scan, how many searches it answered."""
    if request.param == "in threads":
        monkeypatch.setattr(shared_scans, "INLINE_WORK", 0)
    counts, real = [], node.answers_together

    def counted(view, searches, *options):
        counts.append(len(searches))
        return real(view, searches, *options)

    monkeypatch.setattr(node, "answers_together", counted)
    return counts


def searched(node, ids, asked=lambda number: ASKED, most_scans=None):
    """The answers, or errors, of searches that all come in one turn of the event loop."""
    view, searches = node.view("shop"), SharedScans(node)
    searches._most_scans = most_scans or searches._most_scans

    async def ask():
        waits = [searches.answers(view, [view.query([name])], asked(number))
                 for number, name in enumerate(ids)]  # fmt: skip
        return await asyncio.gather(*waits, return_exceptions=True)

    return asyncio.run(ask())


def alone(node, item_id, asked=ASKED):
    view = node.view("shop")
    return node.answers(view, [view.query([item_id])], *asked)


def test_searches_that_come_at_once_get_what_each_gets_alone(node, scans):
    ids = [f"i{number}" for number in range(40)]
    results = searched(node, ids)
    assert [entry.answers for entry in results] == [alone(node, name).answers for name in ids]
    # Threads may begin in any order.
    assert sorted(scans) == [8, AT_ONCE, AT_ONCE]


def test_only_searches_that_ask_for_the_same_share_a_scan(node, scans):
    ids = [f"i{number}" for number in range(20)]
    kinds = [ASKED, ASKED._replace(k=3), ASKED._replace(page=Paging(2)), ASKED._replace(page=Paging(0, ("i3", "i7")))]
    result = searched(node, ids, lambda number: kinds[number % 4])
    assert scans == [5] * 4
    for number, entry in enumerate(result):
        assert entry.answers == alone(node, ids[number], kinds[number % 4]).answers


def test_searches_that_come_while_all_processors_are_busy_wait_and_share_a_scan(node, monkeypatch):
    monkeypatch.setattr(shared_scans, "INLINE_WORK", 0)
    ids, first, going_on = [f"i{number}" for number in range(12)], threading.Event(), threading.Event()
    real, counts = node.answers, []

    def slow(view, queries, *options):
        first.set()
        assert going_on.wait(30)
        return real(view, queries, *options)

    monkeypatch.setattr(node, "answers", slow)
    monkeypatch.setattr(node, "answers_together", lambda view, searches, *options: counts.append(len(searches)) or [])
    monkeypatch.setattr(
        shared_scans, "_settle", lambda group, found: [answer.set_result(None) for answer in group.answers]
    )
    view, searches = node.view("shop"), SharedScans(node)
    searches._most_scans = 1

    async def ask():
        def search(item_id):
            return asyncio.ensure_future(searches.answers(view, [view.query([item_id])], ASKED))

        waits = [search(ids[0])]
        await asyncio.to_thread(first.wait)
        for name in ids[1:]:
            # Each comes in a turn of its own.
            waits.append(search(name))
            await asyncio.sleep(0)
        going_on.set()
        await asyncio.gather(*waits)

    asyncio.run(ask())
    assert counts == [11]


def test_searches_that_were_cancelled_while_they_waited_are_not_begun(node, monkeypatch):
    monkeypatch.setattr(shared_scans, "INLINE_WORK", 0)
    first, going_on, begun, real = threading.Event(), threading.Event(), [], node.answers

    def slow(view, queries, *options):
        begun.append(queries)
        first.set()
        assert going_on.wait(30)
        return real(view, queries, *options)

    monkeypatch.setattr(node, "answers", slow)
    view, searches = node.view("shop"), SharedScans(node)
    searches._most_scans = 1

    async def ask():
        def search(k):
            return asyncio.ensure_future(searches.answers(view, [view.query(["i1"])], ASKED._replace(k=k)))

        running = search(1)
        await asyncio.to_thread(first.wait)
        waiting = [search(k) for k in (2, 3, 4)]
        # Each of them waits for the thread; then the first two are cancelled, as by a server that stops.
        while len(searches._queue) < len(waiting):
            await asyncio.sleep(0)
        for cancelled in waiting[:2]:
            cancelled.cancel()
        going_on.set()
        await asyncio.gather(running, waiting[2])
        assert not searches._open

    asyncio.run(ask())
    assert len(begun) == 2


def test_answers_with_many_items_go_out_while_others_are_computed(node, monkeypatch):
    monkeypatch.setattr(shared_scans, "INLINE_ITEMS", 100)
    view, searches, real = node.view("shop"), SharedScans(node), node.answers_together
    answered, answered_before = [], []
    searches._most_scans = 1

    def counted(view, searches, *options):
        answered_before.append(len(answered))
        return real(view, searches, *options)

    monkeypatch.setattr(node, "answers_together", counted)

    async def search(item):
        await searches.answers(view, [view.query([item])], ASKED._replace(k=100))
        answered.append(item)

    async def ask():
        await asyncio.gather(*(search(f"i{number}") for number in range(4 * AT_ONCE)))

    asyncio.run(ask())
    assert len(answered) == 4 * AT_ONCE
    assert answered_before[-1] >= AT_ONCE


def test_of_shared_searches_only_the_one_that_cannot_be_answered_is_refused(node, scans, monkeypatch):
    real = type(node.view("shop")).search_each

    def fails(view, queries, *options):
        if any(query.rows.tolist() == [3] for query in queries):
            raise SearchError("too large", "not_finite")
        return real(view, queries, *options)

    monkeypatch.setattr(type(node.view("shop")), "search_each", fails)
    result = searched(node, [f"i{number}" for number in range(6)])
    errors = [number for number, outcome in enumerate(result) if isinstance(outcome, SearchError)]
    assert errors == [3]
    assert [len(outcome.answers[0]) for number, outcome in enumerate(result) if number != 3] == [5] * 5


def test_every_search_of_a_group_is_counted(node, scans):
    def count():
        return node.metrics.registry.get_sample_value(
            "omdml_node_searches_total", {"model": "shop", "exact": "true", "via": "gallery"}
        )

    before = count() or 0
    searched(node, [f"i{number}" for number in range(10)])
    assert count() - before == 10


def test_big_searches_run_beside_the_event_loop(shop, node, monkeypatch):
    threads, answers = [], node.answers
    monkeypatch.setattr(node, "answers", lambda *query: threads.append(threading.current_thread()) or answers(*query))
    with asking(node) as client:
        for inline_work in (math.inf, 0):
            monkeypatch.setattr(shared_scans, "INLINE_WORK", inline_work)
            body = client.get("/search", params={"id": "i5", "k": 3}).json()
            assert [item["id"] for item in body["items"]] == shop.expected(shop.learner.version, "i5", 3)[0]
    of_small_search, of_big_search = threads
    assert of_small_search is not of_big_search


def test_many_clients_over_http_get_their_own_answers(shop, node):
    with asking(node) as client:
        base = str(client.base_url)
        expected = {f"i{n}": shop.expected(shop.learner.version, f"i{n}", 5)[0] for n in range(60)}

        async def ask():
            async with httpx.AsyncClient(base_url=base, verify=False, timeout=60.0) as many:
                return await asyncio.gather(*(many.get("/search", params={"id": name, "k": 5}) for name in expected))

        for name, response in zip(expected, asyncio.run(ask()), strict=True):
            assert [hit["id"] for hit in response.json()["items"]] == expected[name]
