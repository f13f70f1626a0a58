"""Nodes that take candidates from an index: exact distances of the live metric, whatever the index holds."""

from __future__ import annotations

import json
import shutil
import threading
from itertools import groupby

import numpy as np
import pytest
from structlog.testing import capture_logs

from omdml import OASIS
from omdml.errors import ConfigurationError
from omdml.streams.catalogues.changes.change import Change
from omdml.streams.indexes.lancedb.writer import LanceIndex
from omdml.streams.protocols.index import IndexAway, IndexMoved, IndexRefused, VectorIndex
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.galleries.candidates import CandidateIndex
from omdml.workers.node.searching.answers import Paging
from omdml.workers.node.searching.options import Options, SearchError
from tests.support.catalogues.candidates import GALLERY, candidates_of, serving, step
from tests.support.catalogues.changing import change, plain_catalogue, raw_item
from tests.support.catalogues.indexes import Postgres, SqliteIndex, Sync, widen
from tests.support.nodes import assert_exact, metric_value, serves
from tests.support.shops import asking, refused
from tests.support.waiting import until, wait_until_ready
from tests.support.worlds import ITEMS

# One process runs the tests of indexes, with one PostgreSQL.
pytestmark = pytest.mark.xdist_group("indexes")


def table_of(shop):
    """Attributes by which half of the items, and three of them, can be found."""
    lines = [{"id": name, "half": row % 2 == 0, "few": row < 3} for row, name in enumerate(shop.catalogue.ids)]
    return Attributes((json.dumps(line).encode() for line in lines), "test")


def test_answers_have_the_distances_of_the_live_version(shop, database):
    step(shop, database)
    with serving(shop, database) as node:
        wait_until_ready(node)
        assert_exact(shop, node.search(ids=["i3"]), "i3")
        shop.learn(10)
        version = shop.publish()
        until(serves(node, version))
        answer = node.search(ids=["i3"])
        assert (answer.version, answer.candidates_version) == (version, 20)
        # The metric moved little, so the candidates have the nearest still.
        assert_exact(shop, answer, "i3")
        by_numbers = node.search(features={name: x[3].tolist() for name, x in shop.catalogue.features.items()}, k=1)
        assert by_numbers.candidates_version == 20
        step(shop, database)
        until(lambda: node.search(ids=["i3"]).candidates_version == version)
        assert_exact(shop, node.search(ids=["i3"]), "i3")


def test_no_answer_is_of_two_versions_while_the_index_is_switched(shop, database):
    step(shop, database)
    failures, answers, ended = [], [], threading.Event()

    def ask(node):
        try:
            while not ended.is_set():
                answers.append(node.search(ids=["i5"], k=3))
        except BaseException as error:
            failures.append(error)

    with serving(shop, database) as node:
        wait_until_ready(node)
        thread = threading.Thread(target=ask, args=(node,))
        thread.start()
        versions = {20}
        with Sync(shop, database.open(), moved=0.0) as sync:
            for _ in range(5):
                shop.learn(3)
                versions.add(shop.publish())
                sync.step()
                until(lambda: failures or (answers and answers[-1].candidates_version == max(versions)))
        ended.set()
        thread.join()
    assert not failures
    assert {answer.candidates_version for answer in answers} <= versions
    for answer in answers:
        assert_exact(shop, answer, "i5", k=3)


def test_another_width_is_found_after_a_switch(shop, database, tmp_path):
    step(shop, database)
    index = candidates_of(shop, database)["shop"]
    before = index.look()
    widen(shop, tmp_path / "wide")
    shop.publish()
    step(shop, database)
    with pytest.raises(IndexMoved):
        index.nearest(before, np.zeros(before.indexed.width, np.float32), 5)
    assert index.look().indexed.width > before.indexed.width
    index.close()


def test_an_index_that_was_removed_and_synced_again_is_read_again(shop, lance):
    step(shop, lance)
    shop.learn(40)
    shop.publish()
    # This version is turned to fit the one before it; without that one it would not be turned.
    step(shop, lance)
    index = candidates_of(shop, lance)["shop"]
    before = index.look()
    index.start()
    shutil.rmtree(lance.folder)
    until(lambda: index.away)
    step(shop, lance)
    until(lambda: not index.away)
    held, fresh = index.held(), candidates_of(shop, lance)["shop"].look()
    index.close()
    assert held.indexed == before.indexed
    assert not np.allclose(before.places, fresh.places)
    assert np.array_equal(held.places, fresh.places)


def test_items_that_came_are_answers_before_the_index_has_them(shop, database):
    step(shop, database)
    with serving(shop, database) as node:
        wait_until_ready(node)
        wanted = raw_item(np.random.default_rng(5))
        change(shop.catalogue, Change(id="new", features=wanted), Change(id="i9", delete=True))
        until(lambda: node.view().covers(shop.catalogue))
        answer = node.search(features=wanted, k=ITEMS // 4)
        assert answer.items[0].id == "new"
        assert answer.items[0].distance < 1e-6
        assert "i9" not in [item.id for item in node.search(ids=["i3"], k=ITEMS // 2).items]
        near = node.search(ids=["new"], k=3)
        assert "new" not in [item.id for item in near.items]
        step(shop, database)
        until(lambda: node._candidates["shop"].held().indexed.rows == ITEMS + 1)
        assert node.search(features=wanted, k=1).items[0].id == "new"


def test_filters_and_excluded_items_are_left_out(shop, lance):
    step(shop, lance)
    table = table_of(shop)
    with serving(shop, lance, attributes=lambda model: table) as node:
        wait_until_ready(node)
        view = node.view()
        query = view.query(["i3"])
        half = node.answer(view, node.attributes.filtered(view, query, {"half": True}), 10)
        right = [item for item in shop.expected(20, "i3", ITEMS)[0] if int(item[1:]) % 2 == 0]
        assert [item.id for item in half.items] == right[:10]
        # All three are compared, without the index.
        few = node.answer(view, node.attributes.filtered(view, query, {"few": True}), 10)
        assert {item.id for item in few.items} == {"i0", "i1", "i2"}
        near = shop.expected(20, "i3", 8)[0]
        rest = node.search(ids=["i3"], k=4, page=Paging(offset=2, exclude=near[:2]))
        assert [item.id for item in rest.items] == near[4:8]


def test_if_too_few_candidates_match_all_items_are_compared_or_it_is_refused(shop, lance, monkeypatch):
    monkeypatch.setattr(f"{GALLERY}.MOST", 40)
    step(shop, lance)
    with serving(shop, lance) as node:
        wait_until_ready(node)
        assert_exact(shop, node.search(ids=["i3"], k=60), "i3", k=60)
        monkeypatch.setattr(f"{GALLERY}.MOST_COMPARED", 50)
        with asking(node) as client:
            message = refused(client.get("/search?id=i3&k=60"), 400, "too_few_candidates")
        assert "39 of the candidates from the index may be answered, and 60 are asked for" in message


def test_expansion_and_explanation_work_on_candidates(shop, lance):
    step(shop, lance)
    with serving(shop, lance) as node, shop.node() as whole:
        wait_until_ready(node)
        wait_until_ready(whole)
        from_candidates, from_all = (
            each.answers(view := each.view(), [view.query(["i3"])], 8, options=Options(expand=3, explain=True))
            for each in (node, whole)
        )
        assert [item.id for item in from_candidates.answers[0]] == [item.id for item in from_all.answers[0]]
        for mine, theirs in zip(from_candidates.answers[0], from_all.answers[0], strict=True):
            assert mine.distance == pytest.approx(theirs.distance, rel=1e-4)
            assert mine.parts == pytest.approx(theirs.parts, rel=1e-3, abs=1e-6)


def test_an_expansion_goes_by_all_items_whatever_the_filter_leaves(shop, lance):
    table = table_of(shop)
    with Sync(shop, lance.open(), table) as sync:
        sync.step()
    with serving(shop, lance, attributes=lambda model: table) as node, shop.node(attributes=lambda m: table) as whole:
        for each in (node, whole):
            wait_until_ready(each)
        from_candidates, from_all = (
            each.answers(view := each.view(), [each.attributes.filtered(view, view.query(["i3"]), {"half": True})], 8,
                         options=Options(expand=3))
            for each in (node, whole)
        )  # fmt: skip
        for mine, theirs in zip(from_candidates.answers[0], from_all.answers[0], strict=True):
            assert (mine.id, mine.distance) == (theirs.id, pytest.approx(theirs.distance, rel=1e-4))


def test_kept_versions_are_answered_without_embedding_all_items(shop, lance):
    step(shop, lance)
    with serving(shop, lance) as node:
        wait_until_ready(node)
        shop.learn(10)
        until(serves(node, shop.publish()))
        view = node.view_of("shop", 20)
        assert_exact(shop, view.search(view.items(["i3"])), "i3")
        assert view.nbytes < 4 * ITEMS * shop.learner.metric.embed(shop.catalogue.features).shape[1] + 50_000


def test_a_node_waits_for_the_first_sync_and_refuses_while_the_index_is_away(shop, lance):
    with capture_logs() as logs, serving(shop, lance) as node, asking(node) as client:
        until(lambda: node.view().snapshot.version == 20)
        assert client.get("/readyz").json()["missing"] == ["shop"]
        message = refused(client.get("/search?id=i3"), 503, "index_away")
        assert "run omdml sync shop" in message
        (model,) = client.get("/models").json()["models"]
        assert (model["ready"], model["candidates"]["version"]) == (False, None)
        step(shop, lance)
        until(lambda: client.get("/readyz").status_code == 200)
        answer = client.get("/search?id=i3")
        assert answer.json()["candidates_version"] == 20
        assert metric_value(node, "candidates_version", model="shop") == 20
        assert metric_value(node, "searches_total", model="shop", exact="false", via="index") == 1
        assert client.get("/search?id=i3", headers={"if-none-match": answer.headers["etag"]}).status_code == 304
        shutil.move(lance.folder, f"{lance.folder}.away")
        until(lambda: metric_value(node, "candidates_away", model="shop") == 1)
        assert "the candidates for model 'shop' cannot be read" in refused(
            client.get("/search?id=i3"), 503, "index_away"
        )
        # The other nodes have no other index, so this one stays ready.
        assert client.get("/readyz").status_code == 200
        shutil.move(f"{lance.folder}.away", lance.folder)
        until(lambda: client.get("/search?id=i3").status_code == 200)
    # A look in the middle of the move may find another reason than the next one, and each is logged.
    events = [event for event, _ in groupby(entry["event"] for entry in logs if entry["event"].startswith("index_"))]
    assert events == ["index_away", "index_read", "index_away", "index_read"]


def test_an_index_that_lost_its_items_is_away_until_it_is_synced_again(shop, postgres):
    database = Postgres(postgres.url)
    step(shop, database)
    database.execute("TRUNCATE omdml_shop_a")
    with serving(shop, database) as node, asking(node) as client:
        until(lambda: node.view().snapshot.version == 20)
        message = refused(client.get("/search?id=i3"), 503, "index_away")
        assert f"lost its items: it has none of {ITEMS} that were written to it. Stop omdml sync" in message
        step(shop, database)
        until(lambda: client.get("/readyz").status_code == 200)
        assert_exact(shop, node.search(ids=["i3"]), "i3")


def test_the_index_of_another_model_or_catalogue_is_refused(shop, lance, tmp_path):
    step(shop, lance)
    other = CandidateIndex("other", lambda: shop.catalogue, lance.open())
    with pytest.raises(IndexRefused, match="holds model 'shop', task None, not model 'other'"):
        other.look()
    rebuilt = plain_catalogue(tmp_path / "rebuilt", count=100)
    again = CandidateIndex("shop", lambda: rebuilt, lance.open())
    with pytest.raises(IndexAway, match=r"holds generation .* of the catalogue, and this node has"):
        again.look()


def test_a_role_that_may_only_read_is_enough_for_postgresql(shop, postgres):
    database = Postgres(postgres.url)
    step(shop, database)
    name = "reader_of_candidates"
    database.execute(f"DROP ROLE IF EXISTS {name}")
    database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret-of-the-reader'")
    database.execute(f"GRANT SELECT ON omdml_shop, omdml_sync TO {name}")
    database.execute(f"GRANT USAGE ON SCHEMA public TO {name}")
    try:
        scheme, _, location = database.address.partition("://")
        reading = Postgres(f"{scheme}://{name}:secret-of-the-reader@{location.rpartition('@')[2]}")
        index = candidates_of(shop, reading)["shop"]
        contents = index.look()
        assert len(index.nearest(contents, contents.places[0], 5)) == 5
        assert "secret" not in str(index)
        index.close()
    finally:
        database.execute(f"DROP OWNED BY {name}")
        database.execute(f"DROP ROLE {name}")


def test_an_index_without_a_reader_says_that_nodes_cannot_use_it():
    class Writer(SqliteIndex):
        reader = VectorIndex.reader

        def __str__(self):
            return "mine"

    with pytest.raises(ConfigurationError, match="mine: nodes cannot take candidates from this kind of index"):
        Writer("sqlite:nothing", "omdml_shop", True).reader()


def test_a_metric_without_vectors_is_refused(shop, lance):
    step(shop, lance)
    learner = OASIS(dims=dict(shop.catalogue.dims))
    learner.start(shop.catalogue.features)
    shop.publish(version=500, metric=learner.metric, learner="oasis")
    with pytest.raises(SearchError, match=r"no snapshot that can be served: .*cannot answer from candidates"):
        serving(shop, lance).view()


def test_lancedb_finds_candidates_in_its_cells(shop, lance, monkeypatch):
    monkeypatch.setattr("omdml.streams.indexes.lancedb.writer.LEAST_ROWS", 50)
    step(shop, lance)
    reader = LanceIndex(lance.folder, "omdml_shop").reader()
    indexed = reader.live()
    ids, places = reader.places(indexed, ["i3", "i4", "nobody's"])
    assert sorted(ids) == ["i3", "i4"]
    assert reader.nearest(indexed, places[0], 1) == [ids[0]]
