"""Whoever has no pointer reaches everything, with few stops of the Tab key."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.support.browsers.consoles import expect_two_unsent_marks, opened, search
from tests.support.shops import Shop

pytestmark = pytest.mark.xdist_group("console")

TOKEN = "0123456789abcdef-move"
FOCUSED = "document.activeElement.ariaLabel ?? document.activeElement.textContent"


@pytest.fixture
def page(shop, site, browser):
    """The console in a browser, which shows the results of i5."""
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        yield page


def stops(page, begin, end):
    """What the Tab key leads to from one element to another, that one included."""
    begin.focus()
    stops_made = []
    while not end.evaluate("(end) => end === document.activeElement"):
        page.keyboard.press("Tab")
        stops_made.append(page.evaluate(FOCUSED))
        assert len(stops_made) < 150
    return stops_made


def cell(page, rank):
    return page.get_by_role("grid", name="Results").get_by_role("gridcell").nth(rank - 1)


def test_results_are_one_stop_of_the_tab_key(page):
    names = stops(
        page, page.get_by_label("Find an item by its id"), page.get_by_role("button", name="Send", exact=True)
    )
    results = [name for name in names if re.match(r"\d+\. |Search from |Fits: |Does not fit: ", name)]
    assert results == [cell(page, 1).get_attribute("aria-label")]
    assert len(names) == 9


def test_arrow_keys_lead_to_the_result_beside_above_and_below(page):
    cell(page, 1).focus()
    places = [cell(page, rank).bounding_box() for rank in range(1, 21)]
    columns = [place["y"] for place in places].count(places[0]["y"])
    assert 1 < columns < 10
    for key, rank in {
        "ArrowRight": 2,
        "ArrowDown": 2 + columns,
        "ArrowLeft": 1 + columns,
        "ArrowUp": 1,
        "End": 20,
        "Home": 1,
    }.items():
        page.keyboard.press(key)
        expect(cell(page, rank)).to_be_focused()
    # There is nothing above, and nothing before.
    for key in ("ArrowUp", "ArrowLeft"):
        page.keyboard.press(key)
        expect(cell(page, 1)).to_be_focused()


def test_every_action_on_a_result_has_a_key(page):
    cell(page, 3).focus()
    item = cell(page, 3).get_attribute("data-id")
    page.keyboard.press("r")
    expect(cell(page, 3)).to_have_attribute("aria-label", f"3. {item}, marked as fitting")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("i")
    expect(cell(page, 4)).to_have_attribute("aria-label", re.compile(", marked as not fitting$"))
    expect_two_unsent_marks(page)
    page.keyboard.press("u")
    expect(cell(page, 4)).to_have_attribute("aria-label", re.compile(r"^4\. i\d+$"))
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("e")
    distance = cell(page, 3).locator(".number").inner_text()
    parts = cell(page, 3).locator(".parts").get_attribute("title")
    expect(page.get_by_role("status")).to_have_text(f"3. {item}: distance {distance}, {parts}.")
    page.keyboard.press("q")
    expect(page.locator(".query .id")).to_have_text(item)
    expect(page.locator(f".results[data-of='{item}'] .card")).to_have_count(20)
    expect(cell(page, 1)).to_be_focused()


def test_the_tab_key_comes_back_to_the_result_that_it_left(page):
    cell(page, 1).focus()
    for key in ("ArrowRight", "ArrowRight", "Tab"):
        page.keyboard.press(key)
    expect(page.locator(".send").get_by_text("Copy as curl")).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(cell(page, 3)).to_be_focused()
    # A pointer leads the keyboard along.
    cell(page, 9).get_by_text("✓ fits").click()
    page.keyboard.press("ArrowRight")
    expect(cell(page, 10)).to_be_focused()
    # The results of another query are entered at the first.
    search(page, "i77")
    page.locator(".answers").get_by_text("Copy as curl").first.focus()
    page.keyboard.press("Tab")
    expect(cell(page, 1)).to_be_focused()


def test_keys_can_be_seen_where_they_can_be_pressed(shop, site, browser):
    site.serve(shop)
    for size, seen in (("desktop", True), ("phone", False)):
        with opened(browser, f"{site.url}/console/", size) as page:
            search(page, "i5")
            keys = page.locator(".keys")
            assert keys.is_visible() is seen
            cell(page, 1).focus()
            page.keyboard.press("r")
            expect(keys).to_contain_text("R fits I does not fit U takes a mark back Enter sends", use_inner_text=True)
            # Screen readers find them too.
            assert page.get_by_role("grid").get_attribute("aria-describedby") == keys.get_attribute("id")
            page.get_by_text("Search by vectors").click()
            page.get_by_label("Vectors").fill(f'{{"shape": {[0.5] * 9}}}')
            page.get_by_role("button", name="Search", exact=True).click()
            expect(page.locator(".results[data-of=''] .card")).to_have_count(20)
            cell(page, 1).focus()
            page.keyboard.press("End")
            expect(keys.get_by_text("searches from it")).to_be_visible()
            expect(keys.get_by_text("sends")).to_be_hidden()


def test_the_reason_for_a_move_comes_before_the_buttons_that_move(shop, site, browser):
    site.serve(shop, TOKEN)
    with opened(browser, f"{site.url}/console/#versions/shop/token={TOKEN}") as page:
        reason = page.get_by_label("Reason for a move (optional, for the history)")
        back = page.get_by_role("button", name="Roll back by one")
        expect(page.get_by_text("Version 0 of shop answers")).to_be_visible()
        assert stops(page, reason, back) == ["", "Pin this", "Roll back by one"]
        assert stops(page, page.get_by_role("link", name="Health"), reason)[-2:] == ["What it holds", ""]


def test_a_page_opened_with_a_key_is_announced_by_its_heading_alone(shop, site, browser):
    site.serve(shop)
    with opened(browser, f"{site.url}/console/") as page:
        search(page, "i5")
        page.evaluate("document.getElementById('heard').replaceChildren()")
        page.get_by_role("link", name="Versions", exact=True).press("Enter")
        expect(page.locator(".two h3")).to_have_count(2)
        expect(page.get_by_role("heading", name="Versions: shop")).to_be_focused()
        expect(page.locator("#heard")).to_be_empty()


@pytest.mark.parametrize(("place", "choice"), [("versions", "Before"), ("letters", "Reason")])
def test_a_choice_that_appears_is_in_one_section_with_the_heading(tmp_path, site, browser, place, choice):
    """Otherwise the screen reader Orca leaves the heading, which has the focus, and reads out the choice instead."""
    site.serve(Shop(tmp_path))
    with opened(browser, f"{site.url}/console/#{place}/shop") as page:
        expect(page.get_by_label(choice, exact=True)).to_be_visible()
        protocol = page.context.new_cdp_session(page)
        nodes = {node["nodeId"]: node for node in protocol.send("Accessibility.getFullAXTree")["nodes"]}

        def above(role, name):
            """What a screen reader finds around an element, from the inside out."""
            node = next(
                node
                for node in nodes.values()
                if node.get("role", {}).get("value") == role and node.get("name", {}).get("value", "").startswith(name)
            )
            while node := nodes.get(node.get("parentId")):
                if not node["ignored"]:
                    yield node["nodeId"]

        around = list(above("heading", "Versions: " if place == "versions" else "Dead letters: "))
        shared = next(node for node in above("combobox", choice) if node in around)
        assert nodes[shared]["role"]["value"] != "main"
