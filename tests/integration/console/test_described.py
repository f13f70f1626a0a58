"""Searches by words and by a picture, on the console's page in a real browser."""

from __future__ import annotations

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.browsers.browsers import Visit
from tests.support.catalogues.products import TEXT, described_catalogue, drawn
from tests.support.processes import ROOT
from tests.support.shops import Shop, listening

pytestmark = pytest.mark.xdist_group("console")

PRODUCT, PICTURE = drawn()[7]


@pytest.fixture
def opened(tmp_path, browser):
    """The page of a node whose catalogue was built from pictures and words."""
    shop = Shop(tmp_path, items=described_catalogue)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context(viewport={"width": 1280, "height": 900}, bypass_csp=True)
        visit = Visit(context, f"{server.url}/console/")
        expect(visit.page.locator(".results .card")).to_have_count(20)
        yield visit
        assert visit.errors == []
        context.close()


def test_words_find_what_is_described_so(opened):
    page = opened.page
    page.get_by_label("Search by words").fill(PRODUCT.description)
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator(".query .shown")).to_contain_text("Similar to these words")
    answers = page.locator(".results[data-of=''] .card")
    expect(answers).to_have_count(20)
    url = page.url.partition("/console/")[0]
    reply = httpx.post(f"{url}/search", json={"text": {TEXT: PRODUCT.description}, "k": 20})
    wanted = [item["id"] for item in reply.raise_for_status().json()["items"]]
    assert [card.get_attribute("data-id") for card in answers.all()] == wanted


def test_unknown_words_are_refused_in_a_sentence(opened):
    opened.page.get_by_label("Search by words").fill("qwertz")
    opened.page.get_by_role("button", name="Search", exact=True).click()
    expect(opened.page.get_by_role("status")).to_contain_text("occurs in the catalogue: use other words")
    # Results of the query before would look like an answer.
    expect(opened.page.locator(".results .card")).to_have_count(0)
    # The browser logs the refusal too.
    assert all("status of 400" in message for message in opened.errors)
    opened.errors.clear()


def test_a_picture_finds_its_item_and_marking_goes_on_from_a_result(opened):
    page = opened.page
    page.get_by_label("Search by a picture").set_input_files(
        {"name": "photo.png", "mimeType": "image/png", "buffer": PICTURE}
    )
    expect(page.locator(".query .shown")).to_contain_text("Similar to this picture")
    answers = page.locator(".results .card")
    expect(answers.first).to_have_attribute("data-id", PRODUCT.id)
    expect(page.get_by_text("✓ fits")).to_have_count(0)
    expect(page.get_by_text("Marks need an item to compare with")).to_be_visible()
    opened.shot(str(ROOT / "build" / "screenshots" / "described.png"))
    result = Axe().run(page)
    assert result.violations_count == 0, result.generate_report()
    answers.first.locator(".look").click()
    expect(page.locator(f".results[data-of='{PRODUCT.id}'] .card")).to_have_count(20)
    expect(page.get_by_text("✓ fits")).to_have_count(20)


def test_a_file_that_is_no_picture_is_refused_by_the_page(opened):
    opened.page.get_by_label("Search by a picture").set_input_files(
        {"name": "list.png", "mimeType": "image/png", "buffer": b"no picture"}
    )
    expect(opened.page.get_by_role("status")).to_contain_text("list.png is no picture that this browser can open")
