"""A page that stays open while the node, its token, its store, its items or another person change something."""

from __future__ import annotations

import re
import time
from functools import partial

import httpx
import msgspec
import pytest
from playwright.sync_api import expect

from omdml.streams.stores.redis.store import RedisStore
from omdml.workers.backoffice.jobs import FoundFault, Health
from omdml.workers.configuration.config import LinksConfig
from omdml.workers.doctor.status import Inspection
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.http.endpoints.console import FOLDER
from tests.support import worlds
from tests.support.browsers.consoles import (
    PAGES,
    cards,
    check_looks,
    everywhere,
    expect_two_unsent_marks,
    go_to,
    mark_two,
    opened,
    search,
    send_two_marks,
)
from tests.support.catalogues.changing import plain_catalogue
from tests.support.processes import ROOT
from tests.support.shops import Shop, sent
from tests.support.worlds import ITEMS

pytestmark = pytest.mark.xdist_group("console")

OLD, NEW = "0123456789abcdef-old", "0123456789abcdef-new"
COPY = ["clipboard-read", "clipboard-write"]


def give(page, token):
    page.get_by_label("Token", exact=True).fill(token)
    page.get_by_role("button", name="Go on").click()


def go_live(shop, site, **changes):
    """Have 20 more comparisons go live; returns the version."""
    shop.learn()
    version = shop.publish(**changes)
    site.node._refresher.refresh("shop")
    return version


def test_marks_outlast_a_look_at_another_page_item_and_a_new_token(shop, site, browser):
    site.serve(shop, OLD)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        mark_two(page)
        go_to(page, "Watch")
        go_to(page, "Try")
        expect(page.locator(".results[data-of='i5'] .card")).to_have_count(20)
        expect_two_unsent_marks(page)
        page.get_by_role("button", name="Token", exact=True).click()
        give(page, OLD)
        expect_two_unsent_marks(page)
        search(page, "i77")
        expect(page.locator(".send")).to_contain_text("Mark what fits and what does not")
        search(page, "i5")
        expect_two_unsent_marks(page)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        assert len(sent(shop)) == 1


def test_a_token_that_was_replaced_is_asked_for_with_the_reason(shop, site, browser):
    site.serve(shop, OLD)
    with opened(browser, f"{site.url}/console/#token={OLD}") as page:
        search(page, "i5")
        mark_two(page)
        site.stop()
        site.serve(shop, NEW)
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("dialog")).to_contain_text("The node does not accept the token that this tab has.")
        page.get_by_role("button", name="Cancel").click()
        expect_two_unsent_marks(page)
        page.get_by_role("button", name="Send").click()
        give(page, NEW)
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        assert len(sent(shop)) == 1


def test_a_private_node_that_refuses_the_token_is_not_called_away(shop, site, browser):
    site.serve(shop, OLD, private=True)
    with opened(browser, f"{site.url}/console/#token={OLD}") as page:
        live = page.locator("#live")
        expect(live).to_have_text("version 0 is live")
        # A page that is still loading would ask for the token itself.
        expect(page.locator(".results .card")).to_have_count(20)
        site.stop()
        expect(live).to_have_text("this node is out of reach")
        site.serve(shop, NEW, private=True)
        expect(live).to_have_text("this node refuses the token")
        page.get_by_role("button", name="Token", exact=True).click()
        give(page, NEW)
        expect(live).to_have_text("version 0 is live")
        expect(page.locator(".results .card")).to_have_count(20)


def test_a_page_that_looks_by_itself_asks_for_a_token_once(shop, site, browser):
    site.serve(shop, OLD, private=True)
    with opened(browser, f"{site.url}/console/#token={OLD}") as page:
        go_to(page, "A/B")
        expect(page.get_by_text("No experiment runs on this node")).to_be_visible()
        site.stop()
        site.serve(shop, NEW, private=True)
        # The page looks every five seconds.
        page.get_by_role("button", name="Cancel").click()
        with page.expect_response(re.compile("/experiments")) as answer:
            pass
        assert answer.value.status == 401
        expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_search_that_was_not_answered_comes_once_the_node_is_back(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        page.get_by_label("Find an item by its id").fill("i77")
        wanted = page.get_by_role("listbox", name="Items").locator("button[data-id='i77']")
        expect(wanted).to_be_visible()
        site.stop()
        wanted.click()
        expect(page.get_by_role("alert")).to_contain_text("This node does not answer")
        expect(page.locator(".results .card")).to_have_count(0)
        site.serve(shop)
        expect(page.locator(".results[data-of='i77'] .card")).to_have_count(20)
        expect(page.get_by_role("alert")).to_be_hidden()


def test_another_store_with_the_same_serial_is_not_taken_for_the_one_before(tmp_path, site, browser):
    shop, other = (Shop(tmp_path / name) for name in ("one", "other"))
    other.learn(7)
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        about = page.locator(".answers .soft").first
        expect(about).to_contain_text("version 0, answered")
        site.stop()
        site.serve(other)
        assert shop.store.current("shop").serial == other.store.current("shop").serial
        expect(about).to_contain_text("version 7, answered")


def test_a_version_that_comes_late_is_still_announced(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        mark_two(page)
        page.get_by_role("button", name="Send").click()
        page.mouse.move(0, 0)
        status = page.get_by_role("status")
        expect(status).to_contain_text("No new version yet")
        version = go_live(shop, site, event_time=time.time())
        expect(status).to_contain_text(f"Version {version} went live.")


def test_a_version_of_other_peoples_marks_is_not_announced_as_mine(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        before = time.time()
        send_two_marks(page)
        theirs = go_live(shop, site, event_time=before)
        expect(page.locator("#live")).to_have_text(f"version {theirs} is live")
        mine = go_live(shop, site, event_time=time.time())
        expect(page.locator(".news")).to_contain_text(f"Version {mine} went live.")


@pytest.mark.parametrize(("motion", "moves"), [("reduce", False), ("no-preference", True)])
def test_nothing_moves_for_who_asked_for_less_motion(shop, site, browser, motion, moves):
    count = (
        "window.motions = 0; const animate = Element.prototype.animate;"
        "Element.prototype.animate = function (...how) { motions += 1; return animate.apply(this, how); };"
        "for (const kind of ['animationstart', 'transitionstart']) addEventListener(kind, () => { motions += 1; });"
    )
    site.serve(shop)
    with opened(browser, "about:blank", reduced_motion=motion) as page:
        page.add_init_script(count)
        page.goto(f"{site.url}/console/")
        search(page, "i5")
        page.mouse.move(0, 0)
        before = cards(page)
        shop.learn(500)
        version = go_live(shop, site)
        expect(page.locator(".answers .soft").first).to_contain_text(f"version {version}, answered")
        assert cards(page) != before
        for name in PAGES:
            go_to(page, name)
        assert (page.evaluate("motions") > 0) is moves


def test_nobody_undoes_a_move_that_the_page_does_not_show_yet(shop, site, browser):
    site.serve(shop, OLD)
    version = go_live(shop, site)
    address = f"{site.url}/console/#token={OLD}"
    with opened(browser, address) as mine, opened(browser, "about:blank") as theirs:
        # News do not come to this page.
        theirs.route(re.compile("/events"), lambda route: route.abort())
        theirs.goto(address)
        for page in (mine, theirs):
            go_to(page, "Versions")
            expect(page.get_by_text(f"Version {version} of shop answers")).to_be_visible()
        mine.get_by_label("Reason for a move").fill("a sale today")
        mine.get_by_role("button", name="Pin this").click()
        expect(mine.get_by_text("pinned: newer versions do not go live")).to_be_visible()
        with theirs.expect_response(re.compile("/rollback")) as answer:
            theirs.get_by_role("button", name="Roll back by one").click()
        assert answer.value.status == 409
        expect(theirs.get_by_role("status")).to_contain_text(
            f"somebody moved it before you: pinned, version {version} by token (a sale today). Nothing was changed."
        )
        assert (shop.store.current("shop").version, shop.store.current("shop").pinned) == (version, True)
        # The page shows what happened. A user who still wants to move it presses the button again.
        expect(theirs.get_by_role("cell", name="a sale today")).to_be_visible()
        theirs.get_by_role("button", name="Unpin").click()
        expect(theirs.get_by_text("follows what is learned")).to_be_visible()


def test_a_query_that_left_the_catalogue_is_reported_and_has_no_results(tmp_path, site, browser):
    shop = Shop(tmp_path, items=plain_catalogue)
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        httpx.delete(f"{site.url}/items/i5", params={"model": "shop"}).raise_for_status()
        page.mouse.move(0, 0)
        go_live(shop, site)
        expect(page.get_by_role("alert")).to_contain_text("i5")
        expect(page.locator(".results .card")).to_have_count(0)
        search(page, "i7")
        expect(page.get_by_role("alert")).to_be_hidden()


def test_pages_show_the_catalogue_that_took_the_place_of_theirs(tmp_path, site, browser):
    shop, other = Shop(tmp_path / "one"), Shop(tmp_path / "other", items=partial(plain_catalogue, count=60))
    items = ("i5", "i77")
    site.serve(shop, attributes=Attributes.of_items((f"i{row}", {"label": f"Mug {row}"}) for row in range(ITEMS)))
    version = go_live(shop, site)
    shop.store.move("shop", version, pin=True)
    site.node._refresher.refresh("shop")
    with everywhere(browser, f"{site.url}/console/") as pages:
        for page, item in zip(pages, items, strict=True):
            search(page, item)
            expect(page.locator(".results .id").first).to_contain_text("Mug")
            mark_two(page)
            expect(page.locator("#live")).to_have_text(f"version {version} is pinned")
        site.stop()
        # The items of the other catalogue have no labels, and i77 is not among them.
        site.serve(other)
        for page, item in zip(pages, items, strict=True):
            expect(page.locator("#live")).to_have_text("version 0 is live")
            if item == "i77":
                expect(page.get_by_role("alert")).to_contain_text("i77")
                expect(page.get_by_role("alert")).to_contain_text("(2) cannot be learned, and were taken away")
                expect(page.locator(".send")).to_contain_text("Mark what fits and what does not")
                expect(page.locator(".results .card")).to_have_count(0)
                search(page, "i7")
                expect(page.get_by_role("alert")).to_be_hidden()
            else:
                answer = httpx.get(f"{site.url}/search", params={"id": "i5", "k": 20}).json()
                expect(page.locator(".results .id")).to_have_text([item["id"] for item in answer["items"]])
                expect_two_unsent_marks(page)
        check_looks(pages, "catalogue-replaced")
        go_to(pages[0], "Versions")
        expect(pages[0].get_by_text("follows what is learned")).to_be_visible()


def test_the_history_goes_on_if_the_query_left_the_catalogue(tmp_path, site, browser):
    shop = Shop(tmp_path, items=plain_catalogue)
    site.serve(shop)
    with opened(browser, f"{site.url}/console/#versions/shop") as page:
        page.get_by_label("Query: an item's id").fill("i5")
        page.get_by_label("Query: an item's id").blur()
        expect(page.locator(".two h3")).to_have_count(2)
        httpx.delete(f"{site.url}/items/i5", params={"model": "shop"}).raise_for_status()
        version = go_live(shop, site)
        # The message disappears, so it is looked for first.
        expect(page.get_by_role("status")).to_contain_text("i5")
        expect(page.get_by_role("cell", name=str(version), exact=True)).to_be_visible()


def test_what_every_page_asks_for_can_be_copied(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/", permissions=COPY) as page:

        def copied():
            expect(page.get_by_role("status")).to_have_text("Copied.")
            page.evaluate("document.getElementById('said').replaceChildren()")
            return page.evaluate("navigator.clipboard.readText()")

        for name, path in (("Watch", "models/shop/steps"), ("A/B", "experiments")):
            go_to(page, name)
            page.get_by_role("button", name="Copy as curl").click()
            assert copied() == f"curl '{site.url}/{path}'"
        go_to(page, "Versions")
        page.get_by_role("button", name="What it holds").click(modifiers=["Shift"])
        assert copied() == f"curl '{site.url}/models/shop/inspect'"


def test_health_calls_a_node_that_is_away_neither_running_nor_ready(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/#health/shop") as page:
        node = page.locator(".card", has_text="Models on this node")
        expect(node).to_contain_text("running")
        site.stop()
        expect(node).to_contain_text("This node does not answer")
        expect(node.locator(".tag.good")).to_have_count(0)
        site.serve(shop)
        expect(node.locator(".tag.good")).to_have_text(["running", "ready", "up to date", "answers"])


def test_versions_comes_by_itself_once_the_store_is_back(tmp_path, site, browser, valkey_server):
    shop = Shop(tmp_path, store=RedisStore(valkey_server.url))
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        mark_two(page)
        valkey_server.pause()
        go_to(page, "Versions")
        expect(page.get_by_role("main")).to_contain_text("is it up, reachable, and not overloaded?")
        # Searches go on without the store.
        go_to(page, "Try")
        expect(page.locator(".results[data-of='i5'] .card")).to_have_count(20)
        expect_two_unsent_marks(page)
        go_to(page, "Versions")
        valkey_server.resume()
        expect(page.get_by_text("Version 0 of shop answers")).to_be_visible()


def test_a_move_is_copied_as_curl_by_touch(shop, site, browser):
    site.serve(shop, OLD)
    with opened(browser, f"{site.url}/console/#token={OLD}", size="phone", has_touch=True, permissions=COPY) as page:
        go_to(page, "Versions")
        page.get_by_label("Copy as curl instead").tap()
        page.get_by_role("button", name="Pin this").tap()
        expect(page.get_by_role("status")).to_have_text("Copied.")
        assert f"{site.url}/models/shop/pin" in page.evaluate("navigator.clipboard.readText()")
        assert not shop.store.current("shop").pinned
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("links", "expected"),
    [
        ({}, "See RUNBOOK.md, section OmdmlDeadLetters"),
        (
            {"runbook": "https://wiki.internal/RUNBOOK.md", "grafana": "https://grafana.internal/d/omdml"},
            "See the runbook",
        ),
    ],
    ids=["no addresses", "addresses"],
)
def test_a_finding_leads_to_its_section_of_the_runbook(shop, site, browser, links, expected):
    configuration = worlds.configuration("items")
    fault = FoundFault("letters", "warning", "3 dead letters are open")

    def office(job):
        return msgspec.json.encode(Health(Inspection(configuration).status(), [fault], LinksConfig(**links)))

    site.serve(shop, office=office)
    with opened(browser, f"{site.url}/console/#health/shop") as page:
        finding = page.locator(".findings li").first
        expect(finding).to_contain_text(expected)
        if links:
            expect(finding.get_by_role("link")).to_have_attribute("href", f"{links['runbook']}#omdmldeadletters")
            expect(page.get_by_role("link", name="Grafana")).to_have_attribute("href", links["grafana"])


def test_the_sections_that_findings_lead_to_are_in_the_runbook():
    script = (FOLDER / "pages/health.js").read_text()
    sections = re.findall(r'"?[\w\' ]+"?: "([^"]+)"', script.partition("const RUNBOOK = {")[2].partition("};")[0])
    titles = re.findall(r"^#+ (.+)$", (ROOT / "deploy" / "RUNBOOK.md").read_text(), re.MULTILINE)
    assert len(sections) == 11
    assert set(sections) <= set(titles)
