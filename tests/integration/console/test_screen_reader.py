"""What a screen reader tells, where the keyboard goes on, and what is not told again and again."""

from __future__ import annotations

import re
import time

import msgspec
import pytest
from playwright.sync_api import expect

from omdml.workers.backoffice.jobs import FoundFault, Health, LetterLine, LetterList
from omdml.workers.configuration.config import LinksConfig
from omdml.workers.doctor.status import Inspection
from tests.support import worlds
from tests.support.browsers.consoles import PAGES, go_to, mark_two, opened, search
from tests.support.shops import Shop

pytestmark = pytest.mark.xdist_group("console")

TOKEN = "0123456789abcdef-move"
# What a screen reader would tell by itself: each change of a live region, and each new focus.
LISTEN = """
window.heard = [];
const note = (region) => { if (region?.textContent) heard.push(region.textContent); };
const live = "[aria-live], [role=status], [role=alert]";
new MutationObserver((changes) => {
  new Set(changes.map(({ target }) => (target.closest ? target : target.parentElement)?.closest(live))).forEach(note);
}).observe(document, { subtree: true, childList: true, characterData: true });
document.addEventListener("focusin", ({ target }) => heard.push(`focus: ${target.ariaLabel ?? target.textContent}`));
"""


@pytest.fixture
def console(shop, site, browser):
    """Open a page of the console that writes down what a screen reader would read aloud."""
    site.serve(shop, TOKEN)
    with opened(browser, "about:blank", bypass_csp=True) as page:

        def open_page(place=""):
            page.add_init_script(LISTEN)
            page.goto(f"{site.url}/console/#{place}{'/' if place else ''}token={TOKEN}")
            return page

        yield open_page


def heard(page):
    """What a screen reader would have read aloud since the last call."""
    return page.evaluate("heard.splice(0)")


def go_live(shop, site, **changes):
    """Have 20 more comparisons go live; returns the version."""
    shop.learn()
    version = shop.publish(**changes)
    site.node._refresher.refresh("shop")
    return version


def focused(page):
    return page.evaluate("document.activeElement.ariaLabel ?? document.activeElement.textContent")


def test_the_first_link_leads_to_the_page_that_is_shown(console):
    page = console("versions/shop")
    expect(page.get_by_role("region", name="History")).to_be_visible()
    skip = page.get_by_role("link", name="To the page")
    skip.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Versions: shop")).to_be_focused()
    expect(page.get_by_role("region", name="History")).to_be_visible()


def test_the_keyboard_and_screen_readers_begin_a_page_at_its_heading(console):
    page = console()
    expect(page.locator(".results .card")).to_have_count(20)
    for name in [*PAGES[1:], "Try"]:
        page.get_by_role("link", name=name, exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name=f"{name}: shop")).to_be_focused()
    page.go_back()
    expect(page.get_by_role("heading", name="Health: shop")).to_be_focused()


def test_who_chooses_another_model_stays_at_the_choice(console):
    page = console()
    expect(page.locator(".results .card")).to_have_count(20)
    choice = page.get_by_role("combobox", name="Model")
    choice.evaluate("(choice) => { choice.append(new Option('other')); choice.focus(); }")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("main")).to_contain_text("is configured; expected shop")
    expect(choice).to_be_focused()


def test_an_id_and_enter_search_from_an_item_and_announce_the_answer(console):
    page = console()
    expect(page.locator(".results .card")).to_have_count(20)
    find = page.get_by_label("Find an item by its id")
    find.press_sequentially("i77")
    option = page.get_by_role("listbox", name="Items").get_by_role("option")
    expect(option).to_have_count(1)
    expect(option).to_have_attribute("aria-setsize", "1")
    expect(option).to_have_attribute("aria-posinset", "1")
    assert "1 item found." in heard(page)
    find.press("Enter")
    expect(page.locator(".results[data-of='i77'] .card")).to_have_count(20)
    expect(page.locator("#heard")).to_have_text("20 results similar to i77.")


def test_who_searches_from_a_result_goes_on_at_the_first_similar_one(console):
    page = console()
    search(page, "i5")
    third = page.locator(".results .card").nth(2)
    item = third.get_attribute("data-id")
    third.get_by_role("button", name="Search from").press("Enter")
    expect(page.locator(f".results[data-of='{item}'] .card")).to_have_count(20)
    expect(page.locator(".results .card").first).to_be_focused()


def test_a_button_that_can_do_nothing_more_keeps_the_focus(console):
    page = console()
    search(page, "i5")
    for name in ("Undo", "Clear", "Send"):
        mark_two(page)
        button = page.get_by_role("button", name=name, exact=True)
        button.focus()
        while button.get_attribute("aria-disabled") != "true" and name != "Send":
            page.keyboard.press("Enter")
        if name == "Send":
            page.keyboard.press("Enter")
            expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        expect(button).to_be_disabled()
        expect(button).to_be_focused()
        # It does nothing.
        heard(page)
        page.keyboard.press("Enter")
        assert heard(page) == []


def test_a_late_count_of_items_is_not_announced_over_the_results(console):
    page, waiting_routes = console(), []
    page.route(re.compile("find=i5"), lambda route: waiting_routes.append(route))
    with page.expect_request(re.compile("find=i5")):
        page.get_by_label("Find an item by its id").fill("i5")
    items = page.get_by_role("listbox", name="Items")
    items.locator("button[data-id='i5']").click()
    expect(page.locator("#heard")).to_have_text("20 results similar to i5.")
    with page.expect_response(re.compile("find=i5")):
        waiting_routes[0].continue_()
    # The grid has drawn the answer.
    expect(items.locator("button")).to_have_count(11)
    expect(page.locator("#heard")).to_have_text("20 results similar to i5.")


def test_marks_are_counted_aloud_once_each(console):
    page = console()
    search(page, "i5")
    expect(page.locator("#heard")).to_have_text("20 results similar to i5.")
    heard(page)
    first = page.locator(".results .card").first
    for button in ("Fits: ", "Does not fit: "):
        first.get_by_role("button", name=re.compile(f"^{button}")).press("Enter")
    spoken = [text for text in heard(page) if "marked as" in text and not text.startswith("focus")]
    assert spoken == [
        "1 marked as fitting, 0 as not fitting. Mark at least one that does not fit.",
        "0 marked as fitting, 1 as not fitting. Mark at least one that fits.",
    ]


def test_versions_of_other_people_do_not_interrupt_who_reads_answers(console, shop, site):
    page = console()
    search(page, "i5")
    page.mouse.move(0, 0)
    heard(page)
    for _ in range(3):
        version = go_live(shop, site)
        expect(page.locator(".answers .soft").first).to_contain_text(f"version {version}, answered")
    assert heard(page) == []
    # Nor do results move while the keyboard is among them.
    mark = page.locator(".results .card").first.get_by_role("button", name="Fits:")
    mark.focus()
    page.keyboard.press("Shift")
    heard(page)
    newer = go_live(shop, site)
    expect(page.locator("#live")).to_have_text(f"version {newer} is live")
    expect(page.locator(".answers .soft").first).to_contain_text(f"version {version}, answered")
    assert heard(page) == []
    page.get_by_role("button", name="Token", exact=True).focus()
    expect(page.locator(".answers .soft").first).to_contain_text(f"version {newer}, answered")


def test_a_version_that_learned_my_marks_is_announced_once(console, shop, site):
    page = console()
    search(page, "i5")
    for scrolled in (False, True):
        if scrolled:
            page.set_viewport_size({"width": 1280, "height": 300})
        mark_two(page)
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        page.evaluate("(far) => scrollTo(0, far ? 9999 : 0)", scrolled)
        heard(page)
        version = go_live(shop, site, event_time=time.time())
        expect(page.get_by_role("status")).to_contain_text(f"Version {version} went live.")
        spoken = [text for text in heard(page) if "went live" in text]
        assert len(spoken) == 1
        # It is seen once, too: at the bottom only if it cannot be seen above the results.
        words = page.locator("#said p")
        assert words.evaluate("(words) => words.offsetHeight > 1") == scrolled
        # Each result says how far it moved.
        moved = page.locator(".results .card", has=page.locator(".moved-up")).first
        expect(moved).to_have_attribute("aria-label", re.compile(r"^\d+\. i\d+, up \d+$"))
        page.reload()
        expect(page.locator(".results .card")).to_have_count(20)


def test_the_choices_of_versions_keep_still_under_the_keyboard(console, shop, site):
    page = console("versions/shop")
    go_live(shop, site)
    before = page.get_by_label("Before", exact=True)
    expect(before.locator("option")).to_have_count(2)
    count = "(choice) => [choice.options.length, [...choice.options].every((option) => option.stays)]"
    keep = "(choice) => { for (const option of choice.options) option.stays = true; }"
    before.focus()
    before.evaluate(keep)
    version = go_live(shop, site)
    expect(page.get_by_role("heading", name=f"Version {version} of shop answers")).to_be_visible()
    assert before.evaluate(count) == [2, True]
    page.get_by_label("Query: an item's id").focus()
    expect(before.locator("option")).to_have_count(3)
    # Nor are they filled again if there is nothing new.
    before.evaluate(keep)
    page.get_by_role("button", name="Pin this").press("Enter")
    expect(page.get_by_text("pinned: newer versions do not go live")).to_be_visible()
    assert before.evaluate(count) == [3, True]


def test_a_focused_button_is_not_announced_with_each_version(console, shop, site):
    page = console("versions/shop")
    expect(page.locator(".two h3")).to_have_count(2)
    page.get_by_role("button", name="Pin this").focus()
    heard(page)
    for _ in range(2):
        version = go_live(shop, site)
        expect(page.get_by_role("heading", name=f"Version {version} of shop answers")).to_be_visible()
        expect(page.locator(".two h3").last).to_have_text(f"Version {version}")
    assert heard(page) == []


def test_each_button_of_the_history_says_which_version_it_moves_to(console, shop, site):
    page = console("versions/shop")
    version = go_live(shop, site)
    history = page.get_by_role("region", name="History")
    history.get_by_role("button", name=f"Pin version {version}").wait_for()
    expect(history.get_by_role("button", name="Pin version 0")).to_have_count(1)
    history.get_by_role("button", name="Roll back to version 0").press("Enter")
    expect(page.get_by_role("status")).to_have_text("Version 0 answers, pinned.")


def test_a_comparison_of_two_versions_announces_what_moved(console, shop, site):
    page = console("versions/shop/i5")
    shop.learn(200)
    version = go_live(shop, site)
    expect(page.locator(".two h3").last).to_have_text(f"Version {version}")
    heard(page)
    page.get_by_label("Query: an item's id").fill("i77")
    page.get_by_label("Query: an item's id").press("Enter")
    expect(page.locator("#heard")).to_have_text(
        re.compile(rf"^Before the first click \(version 0\), and Version {version}: \d+ of 10 items moved\.$")
    )


def test_a_changed_decision_of_the_guard_is_announced(console, shop, site):
    page = console("watch/shop")
    expect(page.locator(".guard")).to_contain_text("nothing was judged yet")
    figures = {"guard_version": 64, "guard_reference": 32, "guard_doubt": 0.012, "guard_queries": 40}
    go_live(shop, site, progress=figures | {"guard_margin": 0.031})
    expect(page.locator("#heard")).to_have_text("The guard: the newest version may answer.")
    heard(page)
    go_live(shop, site, progress=figures | {"guard_margin": 0.042})
    expect(page.locator(".guard")).to_contain_text("margin +0.042")
    assert heard(page) == []


def test_each_table_of_watch_says_what_it_is_of(console, shop, site):
    page = console("watch/shop")
    expect(page.locator("summary")).to_have_count(6)
    assert len({summary.text_content() for summary in page.locator("summary").all()}) == 6
    page.get_by_text("As a table: Weights").press("Enter")
    table = page.get_by_role("region", name="Weights, the newest")
    table.focus()
    heard(page)
    version = go_live(shop, site)
    expect(page.locator(".big b").first).to_have_text(str(version))
    expect(table.locator("tbody tr")).to_have_count(2)
    assert heard(page) == []
    expect(table).to_be_focused()


def test_health_is_announced_again_only_if_it_changes(shop, site, browser):
    status = Inspection(worlds.configuration("items")).status()
    warned = msgspec.structs.replace(status, errors=0, warnings=1)
    answer = msgspec.json.encode(Health(warned, [FoundFault("letters", "warning", "look at it")], LinksConfig()))

    def look(route, warnings):
        """Answer as the node does ten seconds later."""
        status_now = route.fetch().json()
        status_now["status"] |= {"at": time.time() + 60, "warnings": warnings}
        route.fulfill(json=status_now)

    site.serve(shop, office=lambda job: answer)
    with opened(browser, "about:blank") as page:
        page.clock.install()
        page.add_init_script(LISTEN)
        page.goto(f"{site.url}/console/#health/shop")
        expect(page.get_by_text("1 warning")).to_be_visible()
        models = page.get_by_role("region", name="Models")
        models.focus()
        heard(page)
        seen_at = page.get_by_text("seen at").inner_text()
        page.route(re.compile("/status"), lambda route: look(route, 1))
        page.clock.fast_forward(31_000)
        expect(page.get_by_text("seen at")).not_to_have_text(seen_at)
        assert heard(page) == []
        page.route(re.compile("/status"), lambda route: look(route, 2))
        page.clock.fast_forward(31_000)
        expect(page.get_by_text("2 warnings")).to_be_visible()
        assert heard(page) == ["no errors, 2 warnings"]
        expect(models).to_be_focused()


def test_each_button_of_a_dead_letter_says_which_one_it_is_for(tmp_path, site, browser):
    fields = {"at": None, "reason": "invalid", "model": None, "error": "no", "since_then": ""}
    letters = [LetterLine(position=f"log/0/{number}", event=f"event {number}", **fields) for number in range(3)]
    answer = msgspec.json.encode(LetterList(letters, 3, 3, {"invalid": 3}, [], True))
    site.serve(Shop(tmp_path), TOKEN, office=lambda job, **wanted: answer)
    with opened(browser, f"{site.url}/console/#token={TOKEN}") as page:
        go_to(page, "Dead letters")
        for verb in ("Explain", "Send again", "Dismiss"):
            expect(page.get_by_role("button", name=f"{verb}: invalid at 0/1")).to_have_count(1)
        reasons = page.get_by_label("Reason", exact=True)
        reasons.evaluate("(choice) => { for (const option of choice.options) option.stays = true; }")
        page.get_by_role("button", name="Look again").press("Enter")
        expect(page.get_by_text("3 letters, 3 open.")).to_be_visible()
        assert reasons.evaluate("(choice) => [...choice.options].every((option) => option.stays)")
