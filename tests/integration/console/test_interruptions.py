"""Nodes that go away, proxies that answer for them, items that are gone, and hands that are quick."""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from functools import partial

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from omdml.errors import SourceError, StoreError
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.memory_log import MemorySink
from omdml.workers.configuration.config import ExperimentConfig
from omdml.workers.node.experiments.experiments import Experiments
from tests.support import worlds
from tests.support.browsers.browsers import Visit
from tests.support.browsers.consoles import expect_two_unsent_marks, go_to, mark_two, opened, search
from tests.support.catalogues.changing import plain_catalogue
from tests.support.processes import wait_for
from tests.support.shops import Shop, listening, sent

pytestmark = pytest.mark.xdist_group("console")


def go_live(shop, node):
    """Have 20 more comparisons go live; returns the version."""
    shop.learn()
    version = shop.publish()
    node._refresher.refresh("shop")
    return version


def test_who_clicks_send_twice_sends_once(shop, browser):
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        search(page, "i5")
        waiting_routes = []
        page.route(re.compile("/feedback"), lambda route: waiting_routes.append(route))
        mark_two(page)
        page.get_by_role("button", name="Send").dblclick()
        # A mark that is set before the answer is none of those that were sent.
        page.locator(".results .card").nth(2).get_by_text("✓ fits").click()
        for route in waiting_routes:
            route.continue_()
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        expect(page.locator(".send")).to_contain_text("1 marked as fitting, 0 as not fitting.")
        assert len(sent(shop)) == 1


def test_a_key_that_is_held_down_marks_once(shop, browser):
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        search(page, "i5")
        page.locator(".results .card").nth(5).focus()
        page.keyboard.down("r")
        page.keyboard.down("r")
        expect(page.locator(".send")).to_contain_text("1 marked as fitting, 0 as not fitting.")


def test_an_item_that_is_picked_while_the_page_loads_stays_picked(shop, browser):
    with shop.serving() as node, listening(node) as server, opened(browser, "about:blank") as page:
        waiting_routes, searched = [], []
        page.on("request", lambda request: searched.extend(re.findall(r"/search\?.*&id=(\w+)", request.url)))
        page.route(re.compile(r"offset=\d+&limit=1$"), lambda route: waiting_routes.append(route))
        with page.expect_request(re.compile(r"offset=\d+&limit=1$")) as asked:
            page.goto(f"{server.url}/console/")
        page.get_by_role("listbox", name="Items").locator("button[data-id='i5']").click()
        answers = page.locator(".results[data-of='i5'] .card")
        expect(answers).to_have_count(20)
        with page.expect_response(lambda response: response.request == asked.value):
            waiting_routes[0].continue_()
        search(page, "i77")
        assert searched == ["i5", "i77"]


def test_a_click_on_an_item_counts_if_the_grid_changes_under_it(shop, browser):
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        expect(page.locator(".results .card")).to_have_count(20)
        waiting_routes = []
        page.route(re.compile("find=i29"), lambda route: waiting_routes.append(route))
        with page.expect_request(re.compile("find=i29")):
            page.get_by_label("Find an item by its id").fill("i29")
        items = page.get_by_role("listbox", name="Items")
        items.locator("button[data-id='i29']").hover()
        page.mouse.down()
        with page.expect_response(re.compile("find=i29")):
            waiting_routes[0].continue_()
        # By now the page has drawn the answer, or it waits until the mouse button is up.
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
        page.mouse.up()
        expect(page.locator(".results[data-of='i29'] .card")).to_have_count(20)
        # The keyboard reaches what the grid shows now.
        expect(items.locator("button")).to_have_count(1)
        expect(items.locator("button")).to_have_attribute("tabindex", "0")


def test_marks_that_could_not_be_sent_are_still_there(shop, browser):
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        search(page, "i5")
        page.route(re.compile("/feedback"), lambda route: route.abort())
        mark_two(page)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("This node does not answer")
        expect(page.locator(".send")).to_contain_text("1 marked as fitting, 1 as not fitting.")
        page.unroute(re.compile("/feedback"))
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")


def test_marks_whose_answer_is_lost_are_the_same_event_if_they_are_sent_again(shop, browser):
    def lose(route):
        route.fetch()
        route.abort()

    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        search(page, "i5")
        mark_two(page)
        page.route(re.compile("/feedback"), lose)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("This node does not answer")
        page.unroute(re.compile("/feedback"))
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        # A user who still wants these marks sets them again.
        mark_two(page)
        page.get_by_role("button", name="Send").click()
        wait_for(lambda: len(sent(shop)) == 3, "the marks", 30)
        first, again, new = map(json.loads, sent(shop))
        assert first == again
        assert first | {"id": new["id"]} == new
        assert first["id"] != new["id"]


def test_marks_that_the_log_did_not_take_are_the_same_event_once_it_does(shop, browser):
    class Away(MemorySink):
        away = True

        def flush(self, timeout_s=30.0):
            if self.away:
                raise SourceError("no broker answers")
            super().flush(timeout_s)

    sink = Away(shop.log)
    with (
        shop.serving(sink=sink) as node,
        listening(node) as server,
        opened(browser, f"{server.url}/console/") as page,
    ):
        search(page, "i5")
        mark_two(page)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("no broker answers")
        expect_two_unsent_marks(page)
        sink.away = False
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        assert len({json.loads(event)["id"] for event in sent(shop)}) == 1


def test_nothing_can_be_sent_before_there_is_a_query(shop, browser):
    with shop.serving() as node, listening(node) as server, opened(browser, "about:blank") as page:
        page.route(re.compile("limit=200"), lambda route: None)
        page.goto(f"{server.url}/console/")
        for name in ("Send", "Undo", "Clear"):
            expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()


def test_the_news_come_again_after_a_proxy_answered_for_a_node_that_was_away(shop, browser):
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context()
        context.route(re.compile("/events"), lambda route: route.fulfill(status=502))
        page = Visit(context, f"{server.url}/console/").page
        expect(page.locator("#live")).to_have_text("this node is out of reach")
        context.unroute(re.compile("/events"))
        expect(page.locator("#live")).to_have_text("version 0 is live")
        version = go_live(shop, node)
        expect(page.locator("#live")).to_have_text(f"version {version} is live")
        context.close()


def test_watch_goes_on_when_the_node_was_started_again(shop, browser):
    with ExitStack() as first:
        node = first.enter_context(shop.serving())
        server = first.enter_context(listening(node))
        port = int(server.url.rpartition(":")[2])
        with opened(browser, f"{server.url}/console/#watch/shop") as page:
            for _ in range(3):
                version = go_live(shop, node)
            live = page.locator(".big b").first
            expect(live).to_have_text(str(version))
            # The port is free once both have ended.
            first.close()
            with shop.node() as again, listening(again, port=port):
                expect(live).to_have_text(str(version))
                # It is the second step of this node, but the page knows of four.
                version = go_live(shop, again)
                expect(live).to_have_text(str(version))


def test_a_page_that_waits_for_the_first_version_shows_it_by_itself(shop, browser):
    with (
        shop.node() as node,
        listening(node) as server,
        opened(browser, f"{server.url}/console/") as page,
    ):
        expect(page.get_by_role("main")).to_contain_text("no snapshot that can be served")
        shop.publish()
        node._refresher.refresh("shop")
        expect(page.locator(".results .card")).to_have_count(20)


def test_a_page_that_could_not_be_loaded_comes_once_the_network_is_back(shop, browser):
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        expect(page.locator(".results .card")).to_have_count(20)
        page.context.set_offline(True)
        go_to(page, "Versions")
        expect(page.get_by_role("main")).to_contain_text("This node does not answer")
        expect(page.locator("#live")).to_have_text(re.compile("version 0 is live|this node is out of reach"))
        page.context.set_offline(False)
        expect(page.get_by_text("Version 0 of shop answers")).to_be_visible()


def test_versions_says_why_nothing_is_compared_until_that_works_again(shop, browser, monkeypatch):
    def fail(*_):
        raise StoreError("the store does not answer")

    with (
        shop.serving() as node,
        listening(node) as server,
        opened(browser, f"{server.url}/console/#versions/shop/i5") as page,
    ):
        titles, trouble = page.locator(".two h3"), page.locator(".trouble")
        expect(titles).to_have_count(2)
        # The node has version 0 and the live one, and has to ask the store for others.
        version = go_live(shop, node)
        go_live(shop, node)
        page.get_by_label("Before", exact=True).locator(f"option[value='{version}']").wait_for(state="attached")
        with monkeypatch.context() as away:
            away.setattr(shop.store, "load", fail)
            page.get_by_label("Before", exact=True).select_option(str(version))
            expect(trouble).to_contain_text("the store does not answer")
            expect(titles).to_have_count(0)
        trouble.get_by_role("button", name="Try again").click()
        expect(titles.first).to_have_text(f"Version {version}")
        expect(trouble).to_be_hidden()


def test_a_model_of_a_pattern_is_opened_by_its_name(shop, browser):
    shop.publish()
    with (
        shop.node(models=("sh*",)) as node,
        listening(node) as server,
        opened(browser, f"{server.url}/console/") as page,
    ):
        expect(page.get_by_role("main")).to_contain_text("It may have models named sh*.")
        page.get_by_label("Name of a model").fill("shop")
        page.get_by_role("button", name="Open").click()
        expect(page.locator(".results .card")).to_have_count(20)


def test_an_address_that_nobody_can_read_leads_to_the_first_page(shop, browser):
    with (
        shop.serving() as node,
        listening(node) as server,
        opened(browser, f"{server.url}/console/#watch/%E0%A4%A") as page,
    ):
        expect(page.locator(".charts .card")).to_have_count(7)


def test_everybody_can_read_why_a_page_cannot_be_shown(shop, browser):
    with (
        shop.serving() as node,
        listening(node) as server,
        opened(browser, f"{server.url}/console/#watch/{'nobody' * 100}", bypass_csp=True) as page,
    ):
        expect(page.get_by_role("main")).to_contain_text("is configured; expected shop")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        result = Axe().run(page)
        assert result.violations_count == 0, result.generate_report()


def test_results_of_the_query_before_are_no_answer_to_an_item_that_is_gone(tmp_path, browser):
    shop = Shop(tmp_path, items=plain_catalogue)
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        search(page, "i5")
        items = page.get_by_role("listbox", name="Items")
        page.get_by_label("Find an item by its id").fill("i7")
        expect(items.locator("button[data-id='i77']")).to_be_visible()
        httpx.delete(f"{server.url}/items/i77", params={"model": "shop"}).raise_for_status()
        items.locator("button[data-id='i77']").click()
        expect(page.get_by_role("status")).to_contain_text("i77")
        expect(page.locator(".results .card")).to_have_count(0)
        expect(items.locator("button[data-id='i77']")).to_have_count(0)


def test_who_marks_a_pinned_model_is_told_why_nothing_moves(shop, browser):
    with shop.serving() as node, listening(node) as server:
        shop.store.move("shop", 0, pin=True)
        node._refresher.refresh("shop")
        with opened(browser, f"{server.url}/console/") as page:
            expect(page.locator("#live")).to_have_text("version 0 is pinned")
            mark_two(page)
            page.get_by_role("button", name="Send").click()
            expect(page.get_by_role("status")).to_contain_text("The version that answers is pinned.")


def test_who_marks_is_not_told_of_an_experiment_that_has_ended(shop, browser):
    shop.publish()
    shop.learn(200)
    experiments = Experiments({"metric": ExperimentConfig(model="shop", against_version=0, share=1.0)})
    with (
        shop.serving() as node,
        listening(node, experiments=experiments) as server,
        opened(browser, f"{server.url}/console/") as page,
    ):
        expect(page.get_by_text("mixed with shop version 0 for an experiment")).to_be_visible()
        experiments.all.clear()
        mark_two(page)
        with page.expect_response(re.compile("/clicks")) as votes:
            page.get_by_role("button", name="Send").click()
        assert votes.value.status == 404
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        wait_for(lambda: len(sent(shop)) == 1, "the marks", 30)
        go_to(page, "A/B")
        expect(page.get_by_text("No experiment runs on this node")).to_be_visible()


def test_the_keyboard_leads_from_the_page_try_to_another(shop, browser):
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        search(page, "i5")
        page.get_by_role("link", name="Watch").focus()
        page.keyboard.press("Enter")
        expect(page.locator(".charts .card")).to_have_count(7)


def test_a_chart_of_one_step_is_about_a_minute(shop, browser):
    record = (
        "const fill = CanvasRenderingContext2D.prototype.fillText; window.drawn = [];"
        "CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) "
        "{ drawn.push(text); return fill.call(this, text, ...rest); };"
    )
    with shop.serving() as node, listening(node) as server, opened(browser, "about:blank") as page:
        page.add_init_script(record)
        page.goto(f"{server.url}/console/#watch/shop")
        # The lines are those of the weights; beside them is their newest value.
        expect(page.locator(".u-legend").first).to_contain_text("0.500")
        times = [text for text in page.evaluate("drawn") if text.count(":") == 2]
        assert len(set(times)) >= 2


def test_a_long_id_takes_no_more_room_than_another(tmp_path, browser):
    def long_ids(folder):
        features = {name: x[:30] for name, x in worlds.items()[0].items()}
        return build_catalogue(folder, features, ids=[f"{row:02}" + "x" * 510 for row in range(30)])

    shop = Shop(tmp_path, items=long_ids)
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        expect(page.locator(".results .card")).to_have_count(20)
        for place in (".query .shown", ".results .card"):
            assert page.locator(place).first.bounding_box()["height"] < 250
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        go_to(page, "Versions")
        expect(page.locator(".two .results .card")).to_have_count(20)
        assert page.locator(".two .results .card").first.bounding_box()["height"] < 250
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_catalogue_of_one_item_or_none_says_so(tmp_path, browser):
    shop = Shop(tmp_path, items=partial(plain_catalogue, count=4))
    with shop.serving() as node, listening(node) as server, opened(browser, "about:blank") as page:

        def delete(item):
            httpx.delete(f"{server.url}/items/{item}", params={"model": "shop"}).raise_for_status()

        for item in ("i1", "i2", "i3"):
            delete(item)
        page.goto(f"{server.url}/console/")
        expect(page.locator(".legend")).to_have_text("There is no other item.")
        delete("i0")
        # The address still asks for it.
        page.reload()
        expect(page.get_by_role("main")).to_contain_text("has no item 'i0'")
        page.get_by_role("button", name="Any item").click()
        expect(page.locator("body")).to_contain_text("the catalogue is empty")


def test_colours_of_bars_stay_if_a_system_forces_its_own(shop, browser):
    with (
        shop.serving() as node,
        listening(node) as server,
        opened(browser, f"{server.url}/console/", forced_colors="active") as page,
    ):
        shares = page.locator(".results .parts").first.locator(".share")
        expect(shares).to_have_count(2)
        colours = shares.evaluate_all("all => all.map((one) => getComputedStyle(one).backgroundColor)")
        assert len(set(colours)) == 2
