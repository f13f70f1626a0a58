"""Visitors of the console search and mark, over the demo's real worker and node."""

from __future__ import annotations

import json
import re

import httpx
import pytest
from playwright.sync_api import expect

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.workers.node.attributes.table import Attributes
from tests.support import worlds
from tests.support.browsers.browsers import Visit
from tests.support.browsers.consoles import cards, go_to, learned, live, mark, opened, search
from tests.support.shops import Shop, listening

pytestmark = pytest.mark.xdist_group("console")


def test_ten_marks_are_learned_and_the_order_on_the_screen_changes(demo, visit):
    page = visit().page
    search(page, "digit-0004")
    before, version = cards(page), live(demo)
    assert len(before) == 20
    message = mark(page, range(5), range(10, 15))
    pattern = (
        r"Version [\d,]+ went live\. This page shows it [\d.]+ m?s after you sent the marks; "
        r"\d+ of 20 items moved\."
    )
    assert re.fullmatch(pattern, message)
    assert live(demo) == version + 25
    expect(page.locator("#live")).to_have_text(f"version {live(demo):,} is live")
    after = cards(page)
    assert after != before
    answer = httpx.get(f"{demo.url}/search", params={"id": "digit-0004", "k": 20}).json()
    assert after == [item["id"] for item in answer["items"]]


def test_the_demo_begins_with_an_item_of_which_some_answers_fit(demo, visit):
    opened = visit()
    expect(opened.page.locator(".query .id")).to_have_text("digit-0051")
    assert opened.page.url == f"{demo.url}/console/#try/digits/digit-0051"
    asked = {"id": "digit-0051", "k": 14, "version": 0, "fields": ["digit"]}
    items = httpx.post(f"{demo.url}/search", json=asked).raise_for_status().json()["items"]
    assert 4 <= [item["attributes"]["digit"] for item in items].count("2") <= 10


def test_the_demos_digits_can_be_filtered_by_what_they_are(demo):
    asked = {"id": "digit-0004", "k": 5, "filter": {"digit": "7", "ink": {"lt": 0.4}}, "fields": ["digit", "ink"]}
    items = httpx.post(f"{demo.url}/search", json=asked).raise_for_status().json()["items"]
    assert [item["attributes"]["digit"] for item in items] == ["7"] * 5
    assert all(item["attributes"]["ink"] < 0.4 for item in items)


def test_both_kinds_are_needed_and_marks_can_be_taken_back(demo, visit):
    page = visit().page
    version = live(demo)
    first = page.locator(".results .card").first
    send = page.get_by_role("button", name="Send")
    expect(send).to_be_disabled()
    first.get_by_text("✓ fits").click()
    expect(page.locator(".send")).to_contain_text(
        "1 marked as fitting, 0 as not fitting. Mark at least one that does not fit."
    )
    expect(send).to_be_disabled()
    first.get_by_text("✓ fits").click()
    expect(page.locator(".send")).to_contain_text("Mark what fits and what does not")
    assert live(demo) == version


def test_the_last_mark_is_taken_back_before_it_is_sent(visit):
    page = visit().page
    answers = page.locator(".results .card")
    answers.nth(0).get_by_text("✓ fits").click()
    answers.nth(3).get_by_text("✗ not").click()
    expect(page.locator(".send")).to_contain_text(
        "1 marked as fitting, 1 as not fitting. Once sent, they cannot be taken back."
    )
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".send")).to_contain_text("1 marked as fitting, 0 as not fitting.")
    answers.nth(5).focus()
    page.keyboard.press("u")
    expect(page.get_by_role("button", name="Undo")).to_be_disabled()


def test_what_was_sent_cannot_be_taken_back_and_undo_says_so(demo, visit):
    page = visit().page
    mark(page, [0], [9])
    page.get_by_role("button", name="Undo").click()
    expect(page.get_by_role("status")).to_contain_text("What was sent cannot be taken back")


def test_a_result_of_the_query_before_is_not_marked_for_the_next_one(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/").page
        search(page, "i5")
        waiting_routes = []

        def hold(route):
            waiting_routes.append(route)

        page.route(re.compile("/search"), hold)
        page.get_by_label("Find an item by its id").fill("i77")
        page.get_by_role("listbox", name="Items").locator("button[data-id='i77']").click()
        expect(page.locator(".query .id")).to_have_text("i77")
        results = page.locator(".results")
        expect(results).to_have_css("opacity", "0.4")
        expect(page.locator(".answers")).to_contain_text("Searching ...")
        marking = page.locator(".results .card").first.get_by_text("✓ fits")
        marking.click()
        expect(page.locator(".send")).to_contain_text("Mark what fits and what does not")
        for route in waiting_routes:
            route.continue_()
        expect(page.locator(".results[data-of='i77'] .card")).to_have_count(20)
        expect(results).to_have_css("opacity", "1")
        marking.click()
        expect(page.locator(".send")).to_contain_text("1 marked as fitting")
        context.close()


def test_items_are_called_by_their_label(tmp_path, browser):
    labels = {"i0": "<b>a mug</b>", "i1": "كوب أزرق", "i2": "🦄" * 1000}
    attributes = Attributes.of_items(
        (item, {"label": labels.get(item, f"Mug {item}"), "colour": "blue"})
        for item in (f"i{row}" for row in range(worlds.ITEMS))
    )
    shop = Shop(tmp_path)
    with shop.serving(attributes=lambda model: attributes) as node, listening(node) as server:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        visited = Visit(context, f"{server.url}/console/")
        page = visited.page
        search(page, "i5")
        for card in page.locator(".results .card").all():
            item = card.get_attribute("data-id")
            name = card.locator(".id")
            expect(name).to_have_text(labels.get(item, f"Mug {item}"))
            expect(name).to_have_attribute("title", f"{item}, colour blue")
            # Without a picture, a card shows the attributes of its item.
            expect(card).to_contain_text("colour blue")
            expect(card.get_by_text(labels.get(item, f"Mug {item}"))).to_have_count(1)
        grid = page.get_by_role("listbox", name="Items")
        page.get_by_label("Find an item by its id or label").fill("a MUG")
        option = grid.get_by_role("option", name="<b>a mug</b>", exact=True)
        expect(option).to_have_attribute("title", "<b>a mug</b>, i0")
        option.click()
        expect(page.locator(".query .id")).to_have_text(["<b>a mug</b>", "i0"])
        page.get_by_role("button", name="Search from Mug i", exact=False).first.click()
        expect(page.locator(".query .id").first).to_contain_text("Mug i")
        page.reload()
        expect(page.locator(".query .id").first).to_contain_text("Mug i")
        expect(page.get_by_role("button", name="Fits: Mug i").first).to_be_visible()
        go_to(page, "Versions")
        expect(page.locator(".asked .id")).not_to_be_empty()
        expect(page.locator(".two .id").first).to_have_attribute("title", re.compile("colour blue"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert visited.errors == []
        context.close()


def test_an_unknown_id_is_reported_as_unknown(visit):
    page = visit().page
    page.get_by_label("Find an item by its id").fill("nobody")
    expect(page.get_by_role("status")).to_have_text('No item has "nobody" in its id.')


def test_the_keyboard_alone_picks_marks_and_sends(demo, visit):
    page = visit().page
    page.get_by_label("Find an item by its id").fill("digit-1")
    items = page.get_by_role("listbox", name="Items")
    expect(items.locator("button[data-id='digit-1000']")).to_be_visible()
    expect(items.locator("button:not([data-id])")).to_have_count(0)
    items.locator("button[data-id='digit-1000']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    chosen = page.evaluate("document.activeElement.dataset.id")
    assert chosen not in ("digit-1000", "digit-1001")
    page.keyboard.press("Enter")
    expect(page.locator(".query .id")).to_have_text(chosen)
    expect(page.locator(f".results[data-of='{chosen}'] .card")).to_have_count(20)
    version = live(demo)

    def send():
        page.locator(".results .card").first.focus()
        for key in ("r", "ArrowRight", "i", "Enter"):
            page.keyboard.press(key)

    learned(page, send)
    assert live(demo) == version + 1


def test_vectors_that_are_pasted_find_what_is_similar(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        expect(page.locator(".results .card")).to_have_count(20)
        page.get_by_text("Search by vectors").click()
        field = page.get_by_label("Vectors")

        def ask(text):
            field.fill(text)
            field.press("Tab")
            page.keyboard.press("Enter")

        features = {"noise": [0.1] * 5, "shape": [-0.5] * 9}
        ask(json.dumps(features))
        expect(page.locator(".query .shown")).to_contain_text("Similar to these vectors")
        answers = page.locator(".results[data-of=''] .card")
        expect(answers).to_have_count(20)
        answer = httpx.post(f"{server.url}/search", json={"features": features, "k": 20}).raise_for_status().json()
        assert cards(page) == [item["id"] for item in answer["items"]]
        expect(page.locator(".send")).to_contain_text("Marks need an item to compare with")
        for text, message in {
            '{"shape": [1, 2, 3]}': "shape: you gave 3 numbers, and the items' vectors have 9.",
            '{"shape": [1, "2"]}': "shape: expected a list of numbers",
            '{"colour": [1]}': 'The items have no vectors called "colour". They have: ',
            '{"shape": [1': "This is no JSON",
            "1, 2, 3": 'Say which vectors these are, as in {"',
            "{}": "Paste at least one vector.",
        }.items():
            ask(text)
            expect(page.get_by_role("status")).to_contain_text(message)
        # The results are still those of the last answer.
        assert cards(page) == [item["id"] for item in answer["items"]]
        # What is typed is no mark.
        field.press("u")
        expect(field).to_have_value("{}u")


def test_the_numbers_alone_are_enough_if_items_have_one_vector(tmp_path, browser):
    shape = worlds.items()[0]["shape"]
    ids = [f"i{row}" for row in range(len(shape))]
    shop = Shop(tmp_path, items=lambda folder: build_catalogue(folder, {"shape": shape}, ids=ids))
    with shop.serving() as node, listening(node) as server, opened(browser, f"{server.url}/console/") as page:
        page.get_by_text("Search by vectors").click()
        field, button = page.get_by_label("Vectors"), page.get_by_role("button", name="Search", exact=True)
        field.fill("[" + ", ".join(map(str, shape[7])) + "]")
        button.click()
        expect(page.locator(".results[data-of=''] .card").first).to_have_attribute("data-id", "i7")
        for text, message in {"1 2": "you gave 2 numbers", "1; two": '"two" is no number.', "": "at least one"}.items():
            field.fill(text)
            button.click()
            expect(page.get_by_role("status")).to_contain_text(message)
