"""Each page of the console fits the screen, can be read by everybody, and does not grow."""

from __future__ import annotations

import re

import httpx
import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from omdml.workers.backoffice.jobs import LetterLine, LetterList
from omdml.workers.configuration.config import ExperimentConfig
from omdml.workers.node.experiments.experiments import Experiments
from tests.support.browsers.browsers import Visit
from tests.support.browsers.consoles import (
    LOOKS,
    OFFICE_MS,
    PAGES,
    SCREENSHOTS,
    SHOWS,
    SIZES,
    check_looks,
    everywhere,
    go_to,
    mark,
    mark_two,
    opened,
    search,
)
from tests.support.catalogues.products import described_catalogue
from tests.support.deep import deep
from tests.support.shops import Shop, listening

pytestmark = pytest.mark.xdist_group("console")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_bar_tells_what_each_distance_is_made_of(tmp_path, browser, scheme):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme, bypass_csp=True)
        opened = Visit(context, f"{server.url}/console/")
        page = opened.page
        search(page, "i5")
        items = httpx.get(f"{server.url}/search", params={"id": "i5", "k": 20, "explain": "true"}).json()["items"]
        bars = page.locator(".results .parts")
        expect(bars).to_have_count(20)
        for bar, item in zip(bars.all(), items, strict=True):
            shares = [f"{name} {100 * part / item['distance']:.0f} %" for name, part in item["parts"].items()]
            assert bar.get_attribute("aria-label") == "Distance: " + ", ".join(shares)
            widths = [share.bounding_box()["width"] for share in bar.locator(".share").all()]
            assert widths[0] / sum(widths) == pytest.approx(item["parts"]["noise"] / item["distance"], abs=0.02)
        expect(page.locator(".legend")).to_have_text(
            "The number is the distance: the smaller, the more similar.A bar shows what it is made of:noiseshape"
        )
        opened.shot(str(SCREENSHOTS / f"parts-{scheme}.png"))
        result = Axe().run(page)
        assert result.violations_count == 0, result.generate_report()
        assert opened.errors == []
        context.close()


def test_a_part_keeps_its_colour_when_another_one_vanishes(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/").page
        colours = """async (parts) => {
          const { legend } = await import("./parts.js");
          return legend([{ parts }]).slice(1).map((key) => [key.textContent, key.firstChild.className]);
        }"""
        before = page.evaluate(colours, {"plain": 1, "items": 1, "far": 1})
        assert len({colour for _, colour in before}) == 3
        assert page.evaluate(colours, {"items": 1, "far": 1}) == before[1:]
        assert [name for name, _ in before] == [
            "plain: as before the first click",
            "items: learned, what fits compared with all items",
            "far: learned, what fits compared with what does not",
        ]
        context.close()


def test_bars_of_two_models_are_explained_for_each_of_them(tmp_path, browser):
    def mixed(route):
        """Answer as in an experiment with a model that is made of other parts."""
        answer = route.fetch().json()
        for rank, item in enumerate(answer["items"]):
            item["parts"] = ({"plain": 1.0}, {"items": 0.2, "far": 0.8}, {"shape": 0.5, "noise": 0.5})[rank % 3]
        route.fulfill(json=answer)

    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server, opened(browser, "about:blank") as page:
        page.route(re.compile("/search"), mixed)
        page.goto(f"{server.url}/console/")
        expect(page.locator(".parts")).to_have_count(13)
        expect(page.locator(".legend .key")).to_have_text([re.compile("^items"), re.compile("^far"), "shape", "noise"])
        expect(page.locator(".legend")).to_contain_text("or of:")


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_each_page_fits_the_screen_and_is_accessible(visit, size, scheme):
    opened = visit(size=size, scheme=scheme, bypass_csp=True)
    page = opened.page
    expect(page.locator(".results .card")).to_have_count(20)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        go_to(page, name)
        expect(page.get_by_role("main")).to_contain_text(SHOWS.get(name, "Most similar first"), timeout=OFFICE_MS)
        opened.shot(str(SCREENSHOTS / f"{name.lower().replace('/', '').replace(' ', '-')}-{size}-{scheme}.png"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        result = Axe().run(page)
        assert result.violations_count == 0, f"{name}: {result.generate_report()}"


def test_the_number_of_a_version_can_be_read_while_it_changes(tmp_path, site, browser):
    shop = Shop(tmp_path)
    site.serve(shop)
    with everywhere(browser, f"{site.url}/console/#ab/shop") as pages:
        for page in pages:
            expect(page.locator("#live")).to_have_text("version 0 is live")
            # Versions may come faster than the glow of the one before ends.
            page.add_style_tag(content=".live.moved b { animation-duration: 600s; animation-delay: -60s; }")
        shop.learn()
        shop.publish()
        site.node._refresher.refresh("shop")
        for page in pages:
            expect(page.locator("#live.moved")).to_have_text("version 20 is live")
        check_looks(pages, "version-changes")


def test_what_a_version_holds_fits_the_screen(tmp_path, site, browser):
    site.serve(Shop(tmp_path))
    with everywhere(browser, f"{site.url}/console/#versions/shop") as pages:
        for page in pages:
            page.get_by_role("button", name="What it holds").click()
            expect(page.get_by_text("digest")).to_be_visible()
        check_looks(pages, "what-it-holds")


def test_everybody_can_read_several_experiments_of_long_names(tmp_path, site, browser):
    model = "people-of-the-north-who-bought-shoes-in-autumn"
    shop = Shop(tmp_path, model)
    configured = {name: ExperimentConfig(model=model, against_version=0, share=1.0) for name in ("all", "few")}
    with (
        shop.serving(models=(model,)) as node,
        listening(node, experiments=Experiments(configured)) as server,
        everywhere(browser, f"{server.url}/console/#ab/{model}") as pages,
    ):
        for page in pages:
            expect(page.get_by_role("heading", name=f"few: the live version or version 0 of {model}")).to_be_visible()
        check_looks(pages, "experiments")


def test_on_a_phone_answers_are_in_sight_below_all_ways_to_search(tmp_path, site, browser):
    site.serve(Shop(tmp_path, items=described_catalogue))
    with opened(browser, f"{site.url}/console/", "phone") as page:
        answer = page.locator(".results .card").first
        expect(answer).to_be_visible()
        box, bar = answer.locator(".about").bounding_box(), page.locator(".send").bounding_box()
        assert box["y"] + box["height"] < bar["y"]


def test_the_keyboard_leads_to_no_button_that_something_covers(tmp_path, site, browser):
    site.serve(Shop(tmp_path))
    with opened(browser, f"{site.url}/console/", "phone") as page:
        expect(page.locator(".results .card")).to_have_count(20)
        covered = page.evaluate("""() => {
          const all = [...document.querySelectorAll(".results button")];
          return [...all, ...all.toReversed()].filter((button) => {
            button.focus();
            const { x, y, width, height } = button.getBoundingClientRect();
            return !button.contains(document.elementFromPoint(x + width / 2, y + height / 2));
          }).map((button) => button.ariaLabel);
        }""")
        assert covered == []


def test_what_is_said_covers_nothing_of_the_bar_that_sends(tmp_path, site, browser):
    site.serve(Shop(tmp_path))
    for size in SIZES:
        with opened(browser, f"{site.url}/console/", size) as page:
            search(page, "i5")
            mark_two(page)
            page.keyboard.press("ArrowRight")
            page.keyboard.press("e")
            message_box, bar = page.locator("#said p").bounding_box(), page.locator(".send").bounding_box()
            assert message_box["y"] + message_box["height"] <= bar["y"]
            go_to(page, "Watch")
            page.get_by_role("button", name="Copy as curl").click()
            message_box = page.locator("#said p").bounding_box()
            assert message_box["y"] + message_box["height"] > SIZES[size][1] - 40


def test_on_a_phone_versions_can_be_chosen_and_moved_to_without_scrolling(tmp_path, site, browser):
    shop = Shop(tmp_path)
    site.serve(shop)
    with opened(browser, f"{site.url}/console/#versions/shop", "phone") as page:
        shop.learn(1_234)
        shop.publish()
        site.node._refresher.refresh("shop")
        history = page.get_by_role("region", name="History")
        expect(history.get_by_role("button", name="Pin version 1,234")).to_be_visible()
        table = history.bounding_box()
        for button in history.get_by_role("button").all():
            box = button.bounding_box()
            assert box["x"] + box["width"] <= table["x"] + table["width"]

        def top(element):
            return element.bounding_box()["y"]

        assert top(page.get_by_label("Query: an item's id")) == top(page.get_by_role("button", name="Any item"))
        assert top(page.get_by_label("Before", exact=True)) == top(page.get_by_label("After", exact=True))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_long_event_of_a_dead_letter_can_be_scrolled_with_the_keyboard(tmp_path, site, browser):
    letter = LetterLine(
        position="0/1", at=None, reason="invalid", model=None, error="no", since_then="", event="x" * 600
    )
    answer = msgspec.json.encode(LetterList([letter], 1, 1, {"invalid": 1}, [], True))
    site.serve(Shop(tmp_path), office=lambda job, **wanted: answer)
    with everywhere(browser, f"{site.url}/console/#letters/shop") as pages:
        for page in pages:
            expect(page.locator(".event")).to_be_visible()
        check_looks(pages, "long-event")


def test_answers_can_be_seen_at_twice_the_size_and_on_paper(tmp_path, site, browser):
    site.serve(Shop(tmp_path))
    with opened(browser, f"{site.url}/console/", color_scheme="dark") as page:
        expect(page.locator(".results .card")).to_have_count(20)
        # A screen of 1280 x 800 has so many pixels of a page that is shown at twice its size.
        page.set_viewport_size({"width": 640, "height": 400})
        card = page.locator(".results .card").nth(4)
        card.evaluate("(card) => card.scrollIntoView({ block: 'end' })")
        box = card.bounding_box()
        middle = [box["x"] + box["width"] / 2, box["y"] + box["height"] - 12]
        seen = "([x, y]) => document.elementFromPoint(x, y).closest('.card')?.dataset.id"
        assert page.evaluate(seen, middle) == card.get_attribute("data-id")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.emulate_media(media="print")
        expect(page.locator("body")).to_have_css("background-color", "rgb(246, 247, 249)")


def test_an_experiment_of_a_long_name_pushes_no_answer_down_on_a_phone(tmp_path, site, browser):
    def mixed(route):
        """Answer as in an experiment with a model of a long name."""
        beside = {"search": "1", "against": "a-model-of-a-long-name-" * 3, "against_version": 7}
        route.fulfill(json=route.fetch().json() | {"interleaved": beside})

    site.serve(Shop(tmp_path))
    with opened(browser, f"{site.url}/console/#try/shop/i5", "phone") as page:
        first = page.locator(".results .card").first
        top = first.bounding_box()["y"]
        page.route(re.compile("/search"), mixed)
        page.reload()
        expect(page.get_by_text("version 7 for an experiment")).to_be_visible()
        assert first.bounding_box()["y"] == top


@deep
def test_long_use_grows_neither_the_page_nor_the_node(demo, visit):
    opened = visit()
    page = opened.page
    protocol = opened.context.new_cdp_session(page)
    protocol.send("Performance.enable")

    def round_trip():
        for name in ("Watch", "Versions", "Try"):
            go_to(page, name)
        expect(page.locator(".results .card")).to_have_count(20)
        mark(page, [0, 1], [8, 9])

    def sizes():
        protocol.send("HeapProfiler.collectGarbage")
        results = {metric["name"]: metric["value"] for metric in protocol.send("Performance.getMetrics")["metrics"]}
        return results["JSHeapUsedSize"] / 2**20, results["Nodes"], results["JSEventListeners"]

    for _ in range(10):
        round_trip()
    before = sizes()
    for _ in range(30):
        round_trip()
    after = sizes()
    assert after[0] < before[0] + 2.5, (before, after)
    assert after[1] < before[1] * 1.25, (before, after)
    assert after[2] < before[2] * 1.25, (before, after)
