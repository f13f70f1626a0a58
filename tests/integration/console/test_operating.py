"""Operators look at a service with the console, move its versions, and deal with its letters."""

from __future__ import annotations

import json
import re
from contextlib import closing

import httpx
import msgspec
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.files.source import FileSink
from omdml.workers.backoffice.jobs import LetterLine, LetterList, Settled
from omdml.workers.configuration.config import ExperimentConfig
from omdml.workers.node.experiments.experiments import Experiments
from tests.support.browsers.browsers import Visit
from tests.support.browsers.consoles import go_to, live, mark, opened
from tests.support.processes import wait_for
from tests.support.shops import Shop, listening

pytestmark = pytest.mark.xdist_group("console")

TOKEN = "0123456789abcdef-move"
MINE = f"console/#token={TOKEN}"


def test_watch_draws_what_went_live_and_tells_it_as_a_table_too(visit):
    page = visit().page
    mark(page, [0], [9])
    go_to(page, "Watch")
    expect(page.locator(".charts .card")).to_have_count(7)
    chart = page.locator(".charts .card", has=page.get_by_role("heading", name="Weights"))
    chart.get_by_text("As a table").click()
    expect(chart.get_by_role("columnheader", name="plain")).to_be_visible()
    assert chart.locator("details tbody tr").count() >= 2
    # A part that a version does not have counts for nothing in it.
    expect(chart.locator("details tbody")).not_to_contain_text("–")


def test_watch_tells_what_the_guard_decided_by_what_margin_and_why(tmp_path, browser):
    figures = {"version": 64, "reference": 32, "margin": 0.031, "doubt": 0.012, "queries": 40}
    progress = {f"guard_{name}": value for name, value in figures.items()}
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context(bypass_csp=True)
        opened = Visit(context, f"{server.url}/console/#watch/shop")
        guard = opened.page.locator(".guard")
        expect(guard).to_contain_text("nothing was judged yet")
        shop.learn()
        shop.publish(progress=progress)
        expect(guard).to_contain_text("the newest version may answer")
        expect(guard).to_contain_text("further ahead than version 32 does: margin +0.031, give or take 0.012")
        bar = guard.locator(".range").bounding_box()
        middle = guard.locator(".half").bounding_box()
        assert bar["x"] > middle["x"]
        shop.learn()
        shop.store.publish(shop.snapshot(progress=progress | {"guard_margin": -0.031}), shop.epoch, "not as good")
        expect(guard).to_contain_text("newer versions are withheld")
        expect(guard).to_contain_text("not as good")
        expect(guard).to_contain_text("less far ahead than version 32 does: margin -0.031")
        result = Axe().run(opened.page)
        go_to(opened.page, "Versions")
        expect(opened.page.get_by_role("row", name=re.compile("not as good"))).to_contain_text("withheld")
        assert result.violations_count == 0, result.generate_report()
        assert opened.errors == []
        context.close()


def test_an_operator_goes_back_to_an_earlier_version_and_to_the_newest_again(demo, visit):
    page = visit().page
    for _ in range(2):
        mark(page, [0], [9])
    newest = live(demo)
    go_to(page, "Versions")
    # If two versions are compared, I expect the answers of both side by side.
    titles = page.locator(".two h3")
    expect(titles).to_have_text(["Before the first click (version 0)", f"Version {newest:,}"])
    page.get_by_label("Before", exact=True).select_option(index=1)
    expect(titles.first).to_have_text(re.compile("^Version"))
    before = titles.first.inner_text().removeprefix("Version ")
    page.locator("tr", has=page.get_by_role("cell", name=before, exact=True)).get_by_text("Roll back").last.click()
    expect(page.locator("h2").first).to_have_text(f"Version {before} of digits answers")
    expect(page.get_by_text("pinned: newer versions do not go live")).to_be_visible()
    wait_for(lambda: live(demo) == int(before.replace(",", "")), "the earlier version to answer", 30, demo)
    expect(titles.last).to_have_text(f"Version {before}")
    page.get_by_role("button", name="Unpin").click()
    expect(page.get_by_text("follows what is learned")).to_be_visible()
    wait_for(lambda: live(demo) == newest, "the newest to answer again", 30, demo)


def test_a_move_goes_into_the_history_with_who_made_it_and_why(visit):
    page = visit().page
    mark(page, [0], [9])
    go_to(page, "Versions")
    page.get_by_label("Reason for a move").fill("a look back")
    page.get_by_role("button", name="Pin this").click()
    newest = page.locator("tbody tr").first
    expect(newest).to_contain_text("pinned")
    expect(newest).to_contain_text("token")
    expect(newest).to_contain_text("a look back")
    page.get_by_role("button", name="Unpin").click()
    expect(page.get_by_text("follows what is learned")).to_be_visible()
    go_to(page, "Watch")
    expect(page.locator(".moves")).to_contain_text("a look back")


def test_pages_that_show_a_model_say_that_it_was_deleted(tmp_path, browser):
    shop = Shop(tmp_path)
    shop.learn()
    with (
        shop.serving(first=shop.current.first) as node,
        listening(node) as server,
        opened(browser, f"{server.url}/console/#try/shop/i5") as page,
        opened(browser, f"{server.url}/console/#watch/shop") as watch,
    ):
        answered = page.locator(".answers .soft").first
        expect(answered).to_contain_text("version 20, answered")
        expect(watch.locator(".big b").first).to_have_text("20")
        shop.learn()
        shop.publish()
        expect(answered).to_contain_text("version 40, answered")
        shop.store.delete("shop")
        for each_page in (page, watch):
            expect(each_page.locator("#live")).to_have_text("version 0 is live")
        expect(watch.locator(".big b").first).to_have_text("0")
        expect(answered).to_contain_text("version 0, answered")
        # A page that is opened now shows the newest step first.
        page.reload()
        expect(answered).to_contain_text("version 0, answered")
        expect(page.locator("#live")).to_have_text("version 0 is live")


@pytest.fixture
def node(demo):
    token = demo.address.partition("token=")[2]
    with httpx.Client(base_url=demo.url, headers={"authorization": f"Bearer {token}"}, timeout=60) as client:
        yield client


def refused_events(demo, node, *unknown_items):
    """Send an event about each of these items, and wait until all are dead letters that can be explained."""
    answers = {"relevant": "digit-0001", "irrelevant": "digit-0002"}
    sent = [{"type": "triplet", "model": "digits", "query": item, **answers} for item in unknown_items]
    with closing(FileSink(demo.folder / "feedback")) as sink:
        for event in sent:
            sink.send(json.dumps(event).encode(), key="digits")
        sink.flush()

    def ask(path, **parameters):
        return node.get(path, params=parameters).json()

    wait_for(lambda: ask("letters")["total"] == len(sent), "all letters", 60, demo)
    position = ask("letters")["letters"][0]["position"]
    # Until the worker has saved that it passed the event, its fate cannot be explained.
    wait_for(lambda: sent[-1]["query"] in ask("letters/explain", position=position)["why"], "it to save", 60, demo)
    return sent


def test_dead_letters_are_explained_dismissed_and_sent_again(demo, node, visit):
    hopeless, _ = refused_events(demo, node, "nobody" + "y" * 250, "not-yet-there")
    page = visit(permissions=["clipboard-read", "clipboard-write"]).page
    status = page.get_by_role("status")
    go_to(page, "Dead letters")
    letters = page.locator(".letters > li")
    expect(letters).to_have_count(2)
    letter = letters.filter(has_text="nobody")
    expect(letter).to_contain_text("unknown_item")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(letter.locator("pre")).to_have_text(json.dumps(hopeless))
    letter.get_by_role("button", name="Explain").click(modifiers=["Shift"])
    expect(status).to_have_text("Copied.")
    assert "/letters/explain?position=" in page.evaluate("navigator.clipboard.readText()")
    letter.get_by_role("button", name="Explain").click()
    expect(letter.locator("dl")).to_contain_text("nobody")
    letter.get_by_role("button", name="Send again").click()
    expect(status).to_contain_text("Nothing was sent again")
    letter.get_by_role("button", name="Dismiss").click()
    expect(status).to_have_text("1 dismissed.")
    expect(letters).to_have_count(1)
    # Once the cause is fixed, the other one is learned.
    features = {name: [0.5] * dim for name, dim in MappedCatalogue(demo.folder / "items").dims.items()}
    node.put("items/not-yet-there", json={"features": features}).raise_for_status()
    letters.get_by_role("button", name="Explain").click()
    expect(letters.locator("dl")).to_contain_text("It would be learned now")
    letters.get_by_role("button", name="Send again").click()
    expect(status).to_have_text("1 sent again.")
    expect(letters).to_have_count(0)
    page.get_by_label("only open").uncheck()
    expect(letters.filter(has_text="nobody")).to_contain_text("dismissed")
    expect(letters.filter(has_text="not-yet-there")).to_contain_text("sent again")
    node.delete("items/not-yet-there").raise_for_status()


def test_health_shows_the_whole_installation(visit):
    page = visit().page
    go_to(page, "Health")
    expect(page.locator(".facts")).to_contain_text("events waiting")
    # The demo's Valkey keeps nothing on a disk.
    expect(page.locator(".findings").first).to_contain_text("Set appendonly yes")
    partition = page.get_by_role("region", name="Partitions").locator("tbody tr")
    expect(partition).to_have_count(1)
    # The demo's log is in files, and all of its models live there.
    expect(partition.locator("td").nth(3)).to_have_text("1")


def test_an_experiment_interleaves_and_marks_vote(tmp_path, browser):
    shop = Shop(tmp_path)
    shop.publish()
    shop.learn(200)
    experiments = Experiments({"metric": ExperimentConfig(model="shop", against_version=0, share=1.0)})
    with shop.serving() as node, listening(node, experiments=experiments) as server:
        context = browser.new_context()
        opened = Visit(context, f"{server.url}/console/")
        page = opened.page
        expect(page.get_by_text("mixed with shop version 0 for an experiment")).to_be_visible()
        expect(page.locator(".legend")).to_contain_text("so numbers need not rise.")
        page.locator(".results .card").nth(0).get_by_text("✓ fits").click()
        page.locator(".results .card").nth(1).get_by_text("✗ not").click()
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        wait_for(lambda: sum(experiments.all["metric"].tally.counts.clicks) == 1, "the vote", 30)
        go_to(page, "A/B")
        expect(page.locator(".verdict")).to_contain_text("no sure difference yet")
        expect(page.get_by_role("region", name="Searches with clicks").locator("tbody tr")).to_have_count(3)
        assert opened.errors == []
        context.close()


def test_a_double_click_moves_once(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node, TOKEN) as server, opened(browser, f"{server.url}/{MINE}") as page:
        for _ in range(2):
            shop.learn()
            shop.publish()
        node._refresher.refresh("shop")
        go_to(page, "Versions")
        asked = []
        page.on("request", lambda request: asked.extend(re.findall("/rollback$", request.url)))
        page.get_by_role("button", name="Roll back by one").dblclick()
        expect(page.get_by_role("status")).to_have_text("Version 20 answers, pinned.")
        assert len(asked) == 1


def test_a_pause_is_drawn_as_a_time_without_comparisons(tmp_path, browser):
    def paused(route):
        """Ten comparisons a second, none for a minute, then ten a second again."""
        answer = route.fetch().json()
        times = [*range(30), *range(90, 120)]
        (step,) = answer["steps"]
        answer["steps"] = [
            step | {"number": turn, "what": "new_version", "version": 10 * turn, "at": step["at"] + times[turn]}
            for turn in range(60)
        ]
        route.fulfill(json=answer)

    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server, opened(browser, "about:blank", bypass_csp=True) as page:
        page.route(re.compile("/steps"), paused)
        page.goto(f"{server.url}/console/#watch/shop")
        chart = page.locator(".chart", has=page.get_by_role("heading", name="Comparisons a second"))
        expect(chart.locator(".u-legend")).to_contain_text("comparisons10")
        # How high the line is in the middle of the pause, as a share of the chart's height.
        height = chart.evaluate("""(chart) => {
          const canvas = chart.querySelector("canvas");
          const part = (element) => element.getBoundingClientRect();
          const [over, all] = [part(chart.querySelector(".u-over")), part(canvas)];
          const x = Math.round(over.left - all.left + over.width / 2) * devicePixelRatio;
          const [top, tall] = [(over.top - all.top) * devicePixelRatio, over.height * devicePixelRatio];
          const { data } = canvas.getContext("2d").getImageData(x, top, 1, tall);
          const isBlue = (y) => data[4 * y + 3] > 200 && data[4 * y + 2] > data[4 * y] + 80;
          return 1 - [...Array(Math.floor(tall)).keys()].find(isBlue) / tall;
        }""")
        assert height < 0.1


def test_charts_tell_what_the_node_does(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        names = ("recent_mistake_rate", "mistake_rate", "held_out_right", "held_out_right_at_start")
        hedge = {"hedge_loss": 12.25, "hedge_loss_bound": 30.5}
        for _ in range(2):
            shop.learn()
            shop.publish(progress=dict(zip(names, (0.125, 0.25, 0.875, 0.5), strict=True)) | hedge)
            node._refresher.refresh("shop")
        steps = httpx.get(f"{server.url}/models/shop/steps").json()["steps"]
        assert len(steps) == 3
        first, step = steps[0], steps[-1]
        shares = [f"{100 * step['figures'][name]:.1f} %" for name in names]
        shown = {
            "Mistakes": shares[:2],
            "Clicks kept for judging": shares[2:],
            "Hedge's loss": ["12", "31"],
            "Comparisons a second": [f"{(step['version'] - first['version']) / (step['at'] - first['at']):,.0f}"],
            "Weights": [f"{weight:.3f}" for weight in step["weights"].values()],
        }
        with opened(browser, f"{server.url}/console/#watch/shop") as page:
            for title, values in shown.items():
                chart = page.locator(".charts .card", has=page.get_by_role("heading", name=title))
                chart.get_by_text("As a table").click()
                newest = chart.locator("details tbody tr").first.locator("td.number")
                expect(newest).to_have_text(values)
            expect(page.locator(".big b").nth(0)).to_have_text(str(step["version"]))
            expect(page.locator(".big b").nth(1)).to_have_text(shares[0])


def test_nobody_is_offered_a_rollback_from_the_oldest_version(tmp_path, browser):
    shop = Shop(tmp_path)
    shop.publish()
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/").page
        go_to(page, "Versions")
        expect(page.get_by_role("button", name="Roll back by one")).to_be_disabled()
        context.close()


def test_versions_keeps_still_under_a_hand_while_versions_come(tmp_path, site, browser):
    shop = Shop(tmp_path)
    site.serve(shop)

    def go_live(page):
        shop.learn()
        version = shop.publish()
        site.node._refresher.refresh("shop")
        expect(page.get_by_role("heading", name=f"Version {version} of shop answers")).to_be_visible()
        return str(version)

    with opened(browser, f"{site.url}/console/#versions/shop", size="phone") as page:
        history = page.get_by_role("region", name="History")
        page.get_by_role("button", name="What it holds").click()
        pin = page.get_by_role("button", name="Pin this")
        pin.focus()
        history.evaluate("(table) => table.scrollLeft = 150")
        version = go_live(page)
        expect(history.get_by_role("cell", name=version, exact=True)).to_be_visible()
        assert history.evaluate("(table) => table.scrollLeft") == 150
        expect(pin).to_be_focused()
        expect(page.get_by_role("region", name="Matrices")).to_be_visible()
        # A button does not move away while somebody is about to press it.
        history.get_by_role("button", name="Roll back").first.hover()
        newer = go_live(page)
        expect(history.get_by_role("cell", name=newer, exact=True)).to_have_count(0)
        page.mouse.move(0, 0)
        expect(history.get_by_role("cell", name=newer, exact=True)).to_be_visible()


def test_the_keyboard_goes_on_at_the_letter_after_one_that_was_dismissed(tmp_path, site, browser):
    fields = {"at": None, "reason": "invalid", "model": None, "error": "no", "since_then": ""}
    letters = [LetterLine(position=f"0/{number}", event=f"event {number}", **fields) for number in range(3)]

    def office(job, wanted=(), **asked):
        if job == "dismiss":
            letters[:] = [letter for letter in letters if letter.position not in wanted]
            return msgspec.json.encode(Settled(len(wanted)))
        return msgspec.json.encode(LetterList(letters, len(letters), len(letters), {"invalid": len(letters)}, [], True))

    site.serve(Shop(tmp_path), TOKEN, office=office)
    with opened(browser, f"{site.url}/{MINE}") as page:
        go_to(page, "Dead letters")
        for dismissed, focused in (("event 1", "event 2"), ("event 2", "event 0")):
            page.locator(".letters > li", has_text=dismissed).get_by_text("Dismiss").press("Enter")
            expect(page.locator(".letters > li:has(:focus)")).to_contain_text(focused)
        page.locator(".letters > li").get_by_text("Dismiss").press("Enter")
        expect(page.get_by_role("button", name="Look again")).to_be_focused()
