"""The address of a page of the console holds page, model and query; and two tabs on one node."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from omdml.streams.catalogues.building.build import build_catalogue
from tests.support import worlds
from tests.support.browsers.browsers import Visit
from tests.support.browsers.consoles import (
    SETTLED,
    cards,
    expect_two_unsent_marks,
    go_to,
    live,
    mark,
    mark_two,
    opened,
    search,
)
from tests.support.shops import Shop
from tests.support.worlds import ITEMS

pytestmark = pytest.mark.xdist_group("console")


def shows(page, item):
    """Expect the page Try with the answers to this query."""
    expect(page.locator(f".results[data-of='{item}'] .card")).to_have_count(20)
    expect(page.locator(".query .id").first).to_have_text(item)
    assert page.url.endswith(f"#try/shop/{item}")


def test_back_and_forward_lead_from_query_to_query_and_page_to_page(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/#try/shop/i5") as page:
        shows(page, "i5")
        mark_two(page)
        search(page, "i77")
        go_to(page, "Versions")
        expect(page.locator(".two h3")).to_have_count(2)
        page.go_back()
        shows(page, "i77")
        page.go_back()
        shows(page, "i5")
        expect_two_unsent_marks(page)
        page.go_forward()
        shows(page, "i77")
        page.go_forward()
        expect(page.locator(".two h3")).to_have_count(2)
        # A tab of the navigation goes on with the query that was last.
        go_to(page, "Try")
        shows(page, "i77")


def test_a_reload_and_a_link_show_page_model_and_query_again(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        before = cards(page)
        page.reload()
        shows(page, "i5")
        assert cards(page) == before
        go_to(page, "Versions")
        query = page.get_by_label("Query: an item's id")
        query.fill("i7")
        query.blur()
        expect(page).to_have_url(re.compile("#versions/shop/i7$"))
        with opened(browser, page.url) as other:
            expect(other.get_by_label("Query: an item's id")).to_have_value("i7")
            expect(other.locator(".two h3")).to_have_count(2)
            assert other.title() == "Versions · shop"


def test_what_versions_begins_with_does_not_replace_a_query_that_was_typed(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        late = []
        page.route(re.compile(r"/items\?.*offset="), lambda route: late.append(route))
        go_to(page, "Versions")
        query = page.get_by_label("Query: an item's id")
        query.fill("i7")
        query.blur()
        expect(page.locator(".two h3")).to_have_count(2)
        with page.expect_response(re.compile(r"/items\?.*offset=")) as answer:
            for route in late:
                route.continue_()
        answer.value.finished()
        # A page that took it over would have done so by then.
        page.wait_for_timeout(300)
        expect(query).to_have_value("i7")
        assert page.url.endswith("#versions/shop/i7")


def test_an_item_with_any_name_outlasts_a_reload(tmp_path, site, browser):
    names = ["50 % off/red#1?", "ä & ö"] + [f"i{row}" for row in range(ITEMS - 2)]
    features = worlds.items()[0]
    shop = Shop(tmp_path, items=lambda folder: build_catalogue(folder, features, ids=names))
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        for name in names[:2]:
            page.get_by_label("Find an item by its id").fill(name)
            page.get_by_role("option", name=name, exact=True).click()
            expect(page.locator(".query .id")).to_have_text(name)
            page.reload()
            expect(page.locator(".query .id")).to_have_text(name)
            expect(page.locator(".results .card")).to_have_count(20)


def test_a_link_to_an_item_that_is_gone_says_so(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/#try/shop/nobody") as page:
        expect(page.get_by_role("alert")).to_contain_text("nobody")
        expect(page.locator(".results .card")).to_have_count(0)
        search(page, "i5")
        expect(page.get_by_role("alert")).to_be_hidden()


def test_two_tabs_keep_their_own_marks_and_both_see_what_one_taught(demo, browser):
    context = browser.new_context()
    first_tab, second_tab = Visit(context, demo.address).page, Visit(context, demo.address).page
    search(first_tab, "digit-0004")
    search(second_tab, "digit-0011")
    mark_two(second_tab)
    before = live(demo)
    mark(first_tab, [0], [9])
    assert live(demo) > before
    for page in (first_tab, second_tab):
        expect(page.locator("#live b")).to_have_text(f"{live(demo):,}")
    # What the other tab marked is neither sent nor lost, and its answers did not move under its hand.
    expect_two_unsent_marks(second_tab)
    second_tab.get_by_role("button", name="Send").click()
    expect(second_tab.get_by_role("status")).to_have_text(SETTLED)
    for page in (first_tab, second_tab):
        expect(page.locator("#live b")).to_have_text(f"{live(demo):,}")
        expect(page.locator(".answers .soft").first).to_contain_text(f"version {live(demo):,}, answered")
    # A third tab that somebody opens without the token in its address has no token of theirs.
    assert second_tab.evaluate("Object.keys(localStorage)") == []
    third = context.new_page()
    third.goto(f"{demo.url}/console/")
    assert third.evaluate("sessionStorage.length") == 0
    context.close()
