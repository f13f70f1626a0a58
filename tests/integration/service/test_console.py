"""The console in a real browser, over the demo's real worker and node."""

from __future__ import annotations

import json
import re
import threading
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from omdml.streams.files.source import FileSink
from omdml.workers.configuration.config import ExperimentConfig
from omdml.workers.node.experiments.experiments import Experiments
from tests.support.browsers import Visit, chromium
from tests.support.deep import deep
from tests.support.processes import ROOT, Process, wait_for
from tests.support.shops import Shop, listening

# One demo and one browser for all: each process that runs tests would start its own.
pytestmark = pytest.mark.xdist_group("console")
SET_UP_S = 180.0  # with kernels compiled
PAGES = ("Try", "Watch", "Versions", "A/B", "Dead letters", "Health")
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
SETTLED = re.compile("went live|No new version")  # what is said once marks were learned, or held out
SCREENSHOTS = ROOT / "build" / "screenshots"


class Demo(Process):
    """``omdml demo --console``, and the address it prints."""

    @property
    def address(self) -> str:
        return re.search(r"console: (\S+)", self.said)[1]

    @property
    def url(self) -> str:
        """The node's."""
        return self.address.partition("/console/")[0]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("console")
    one = Demo(folder, "demo", "--console", "--keep", str(folder / "kept"))
    one.folder = folder / "kept"
    wait_for(lambda: "Ctrl-C ends the demo" in one.said, "the demo to be ready", SET_UP_S, one)
    yield one
    one.close()


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def visit(demo, browser):
    """Open the console; whatever goes wrong on its pages fails the test that opened them."""
    visits = []

    def open_console(address=demo.address, size="desktop", scheme="light", **options):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        visits.append(Visit(context, address))
        return visits[-1]

    yield open_console
    for one in visits:
        one.context.close()
        assert one.wrong == []
        assert one.hosts == {urlsplit(demo.url).netloc}


def cards(page):
    """The ids of the answers, in order."""
    return [card.get_attribute("data-id") for card in page.locator(".results > li").all()]


def search(page, item):
    """Search from an item, by its id."""
    page.get_by_label("Find an item by its id").fill(item)
    page.get_by_role("listbox", name="Items").locator(f"button[data-id='{item}']").click()
    expect(page.locator(f".results[data-of='{item}'] > li")).to_have_count(20)


def mark(page, fits, fits_not):
    """Mark answers by their rank, send, and wait for the next version; answers what is said of it."""

    def send():
        answers = page.locator(".results > li")
        for rank in fits:
            answers.nth(rank).get_by_text("✓ fits").click()
        for rank in fits_not:
            answers.nth(rank).get_by_text("✗ not").click()
        page.get_by_role("button", name="Send").click()

    return learned(page, send)


def learned(page, send):
    """Send marks until some are learned: the guard keeps one in fifty, drawn at random, to measure with."""
    for _ in range(4):
        page.evaluate("document.getElementById('said').replaceChildren()")
        send()
        expect(page.get_by_role("status")).to_have_text(SETTLED)
        if "went live" in (said := page.get_by_role("status").inner_text()):
            return said
    raise AssertionError("nothing was learned of four marks")


def go_to(page, name):
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")


def live(demo):
    """The version that answers."""
    return httpx.get(f"{demo.url}/models").json()["models"][0]["version"]


def test_ten_marks_are_learned_and_the_order_on_the_screen_changes(demo, visit):
    page = visit().page
    search(page, "digit-0004")
    before, version = cards(page), live(demo)
    assert len(before) == 20
    said = mark(page, range(5), range(10, 15))
    pattern = r"Version [\d,]+ went live, and is on this page [\d.]+ m?s after you sent; \d+ of 20 moved\."
    assert re.fullmatch(pattern, said)
    assert live(demo) == version + 25
    expect(page.locator("#live")).to_have_text(f"version {live(demo):,} is live")
    after = cards(page)
    assert after != before
    told = httpx.get(f"{demo.url}/search", params={"id": "digit-0004", "k": 20}).json()
    assert after == [item["id"] for item in told["items"]]


def test_the_demos_digits_can_be_filtered_by_what_they_are(demo):
    asked = {"id": "digit-0004", "k": 5, "filter": {"digit": "7", "ink": {"lt": 0.4}}, "fields": ["digit", "ink"]}
    found = httpx.post(f"{demo.url}/search", json=asked).raise_for_status().json()["items"]
    assert [item["attributes"]["digit"] for item in found] == ["7"] * 5
    assert all(item["attributes"]["ink"] < 0.4 for item in found)


def test_both_kinds_are_needed_and_marks_can_be_taken_back(demo, visit):
    page = visit().page
    version = live(demo)
    first = page.locator(".results > li").first
    send = page.get_by_role("button", name="Send")
    expect(send).to_be_disabled()
    first.get_by_text("✓ fits").click()
    expect(page.locator(".send")).to_contain_text("1 fit, 0 do not. Mark at least one that does not fit.")
    expect(send).to_be_disabled()
    first.get_by_text("✓ fits").click()
    expect(page.locator(".send")).to_contain_text("Mark what fits and what does not")
    assert live(demo) == version


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
    expect(page.locator(f".results[data-of='{chosen}'] > li")).to_have_count(20)
    version = live(demo)

    def send():
        page.locator(".results > li").first.focus()
        for key in ("r", "ArrowRight", "i", "Enter"):
            page.keyboard.press(key)

    learned(page, send)
    assert live(demo) == version + 1


def test_watch_draws_what_went_live_and_tells_it_as_a_table_too(visit):
    page = visit().page
    mark(page, [0], [9])
    go_to(page, "Watch")
    expect(page.locator(".charts .card")).to_have_count(6)
    chart = page.locator(".charts .card", has_text="Weights")
    chart.get_by_text("As a table").click()
    expect(chart.get_by_role("columnheader", name="plain")).to_be_visible()
    assert chart.locator("tbody tr").count() >= 2


def test_an_operator_goes_back_to_an_earlier_version_and_to_the_newest_again(demo, visit):
    page = visit().page
    mark(page, [0], [9])
    newest = live(demo)
    go_to(page, "Versions")
    # If two versions are compared, I expect the answers of both side by side.
    expect(page.locator(".two h3")).to_have_text(["Version 0", f"Version {newest:,}"])
    page.locator("tr", has=page.get_by_role("cell", name="0", exact=True)).get_by_text("Roll back").last.click()
    expect(page.locator("h2").first).to_have_text("Version 0 of digits answers")
    expect(page.get_by_text("pinned: newer versions do not go live")).to_be_visible()
    wait_for(lambda: live(demo) == 0, "version 0 to answer", 30, demo)
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


def test_the_last_mark_is_taken_back_before_it_is_sent(visit):
    page = visit().page
    answers = page.locator(".results > li")
    answers.nth(0).get_by_text("✓ fits").click()
    answers.nth(3).get_by_text("✗ not").click()
    expect(page.locator(".send")).to_contain_text("1 fit, 1 do not.")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator(".send")).to_contain_text("1 fit, 0 do not.")
    answers.nth(5).focus()
    page.keyboard.press("u")
    expect(page.get_by_role("button", name="Undo")).to_be_disabled()


def test_a_dead_letter_is_explained_and_dismissed(demo, visit):
    headers = {"authorization": f"Bearer {demo.address.partition('token=')[2]}"}
    event = {
        "type": "triplet",
        "model": "digits",
        "query": "digit-1",
        "relevant": "digit-0001",
        "irrelevant": "digit-0002",
    }
    with closing(FileSink(demo.folder / "feedback")) as sink:
        sink.send(json.dumps(event).encode(), key="digits")
        sink.flush()

    def count():
        return httpx.get(f"{demo.url}/letters", headers=headers, timeout=60).json()["total"]

    wait_for(lambda: count() == 1, "a letter", 60, demo)
    page = visit().page
    go_to(page, "Dead letters")
    letter = page.locator(".letters > li")
    expect(letter).to_contain_text("unknown_item")
    expect(letter.locator("pre")).to_have_text(json.dumps(event))
    letter.get_by_role("button", name="Explain").click()
    expect(letter.locator("dl")).to_contain_text("digit-1")
    letter.get_by_role("button", name="Send again").click()
    expect(page.get_by_role("status")).to_contain_text("Nothing was sent again")
    letter.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("status")).to_have_text("1 dismissed.")
    expect(page.locator(".letters > li")).to_have_count(0)
    page.get_by_label("only open").uncheck()
    expect(page.locator(".letters > li")).to_contain_text("dismissed")


def test_health_shows_the_whole_installation(visit):
    page = visit().page
    go_to(page, "Health")
    expect(page.locator(".facts")).to_contain_text("events waiting")
    # The demo's Valkey keeps nothing on a disk.
    expect(page.locator(".findings").first).to_contain_text("set appendonly yes")
    expect(page.get_by_role("region", name="Partitions").locator("tbody tr")).to_have_count(1)


def test_an_experiment_interleaves_and_marks_vote(tmp_path, browser):
    shop = Shop(tmp_path)
    shop.publish()
    shop.learn(200)
    experiments = Experiments({"metric": ExperimentConfig(model="shop", against_version=0, share=1.0)})
    with shop.serving() as node, listening(node, experiments=experiments) as server:
        context = browser.new_context()
        opened = Visit(context, f"{server.url}/console/")
        page = opened.page
        expect(page.get_by_text("in turn with shop version 0")).to_be_visible()
        page.locator(".results > li").nth(0).get_by_text("✓ fits").click()
        page.locator(".results > li").nth(1).get_by_text("✗ not").click()
        page.get_by_role("button", name="Send").click()
        expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        wait_for(lambda: sum(experiments.all["metric"].tally.counts.clicks) == 1, "the vote", 30)
        go_to(page, "A/B")
        expect(page.locator(".verdict")).to_contain_text("no sure difference yet")
        expect(page.get_by_role("region", name="Searches with clicks").locator("tbody tr")).to_have_count(3)
        assert opened.wrong == []
        context.close()


def test_a_tab_that_nobody_sees_asks_for_nothing(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/").page
        expect(page.locator(".results > li")).to_have_count(20)
        open_streams = node.course._listeners
        wait_for(lambda: len(open_streams) == 1, "a stream", 30)
        page.evaluate(
            "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        wait_for(lambda: not open_streams, "no stream", 30)
        asked = []
        page.on("request", lambda request: asked.append(request.url))
        shop.learn()
        shop.publish()
        node._refresher.refresh("shop")
        page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.locator("#live")).to_contain_text("version 20 is live")
        # Once it is seen again it opens the stream, and only then.
        assert asked[0].endswith("/events")
        context.close()


def test_who_comes_without_the_token_is_asked_for_it_once(demo, visit):
    opened = visit(f"{demo.url}/console/")
    page = opened.page
    answers = page.locator(".results > li")
    answers.nth(0).get_by_text("✓ fits").click()
    answers.nth(1).get_by_text("✗ not").click()
    page.get_by_role("button", name="Send").click()
    page.get_by_label("Token", exact=True).fill(demo.address.partition("token=")[2])
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("status")).to_have_text(SETTLED)
    mark(page, [0], [1])
    # The browser tells of the one answer 401.
    assert [message for message in opened.wrong if "401" in message] == opened.wrong
    assert len(opened.wrong) == 1
    opened.wrong.clear()


def test_a_private_node_asks_for_the_token_before_it_tells_anything(tmp_path, browser):
    shop, token = Shop(tmp_path), "0123456789abcdef-private"
    with shop.serving() as node, listening(node, token, private=True) as server:
        context = browser.new_context()
        opened = Visit(context, f"{server.url}/console/")
        page = opened.page
        page.get_by_label("Token", exact=True).fill(token)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator(".results > li")).to_have_count(20)
        # What goes live comes as a stream of events, for which browsers can send no token.
        shop.learn()
        shop.publish()
        node._refresher.refresh("shop")
        expect(page.locator("#live")).to_contain_text("version 20 is live")
        # The first request has no token, and the browser tells of that.
        assert len(opened.wrong) == 1
        assert "401" in opened.wrong[0]
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_bar_tells_what_each_distance_is_made_of(tmp_path, browser, scheme):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme, bypass_csp=True)
        opened = Visit(context, f"{server.url}/console/")
        page = opened.page
        search(page, "i5")
        told = httpx.get(f"{server.url}/search", params={"id": "i5", "k": 20, "explain": "true"}).json()["items"]
        bars = page.locator(".results .parts")
        expect(bars).to_have_count(20)
        for bar, item in zip(bars.all(), told, strict=True):
            shares = [f"{name} {100 * part / item['distance']:.0f} %" for name, part in item["parts"].items()]
            assert bar.get_attribute("aria-label") == "Distance: " + ", ".join(shares)
            widths = [share.bounding_box()["width"] for share in bar.locator(".share").all()]
            assert widths[0] / sum(widths) == pytest.approx(item["parts"]["noise"] / item["distance"], abs=0.02)
        expect(page.locator(".legend")).to_have_text("A bar shows what makes the distance:noiseshape")
        opened.shot(str(SCREENSHOTS / f"parts-{scheme}.png"))
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        assert opened.wrong == []
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_each_page_fits_the_screen_and_is_accessible(visit, size, scheme):
    opened = visit(size=size, scheme=scheme, bypass_csp=True)
    page = opened.page
    expect(page.locator(".results > li")).to_have_count(20)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        go_to(page, name)
        page.wait_for_timeout(700)
        opened.shot(str(SCREENSHOTS / f"{name.lower().replace('/', '').replace(' ', '-')}-{size}-{scheme}.png"))
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        found = Axe().run(page)
        assert found.violations_count == 0, f"{name}: {found.generate_report()}"


def test_it_works_behind_a_proxy_that_puts_a_path_before_it(demo, browser):
    with proxy(urlsplit(demo.url).netloc, "/inner/omdml") as url:
        context = browser.new_context()
        one = Visit(context, f"{url}/inner/omdml/console/#token={demo.address.partition('token=')[2]}")
        mark(one.page, [0], [1])
        assert (one.wrong, one.hosts) == ([], {urlsplit(url).netloc})
        context.close()


@deep
def test_long_use_grows_neither_the_page_nor_the_node(demo, visit):
    opened = visit()
    page = opened.page
    protocol = opened.context.new_cdp_session(page)
    protocol.send("Performance.enable")

    def round_trip():
        for name in ("Watch", "Versions", "Try"):
            go_to(page, name)
        expect(page.locator(".results > li")).to_have_count(20)
        mark(page, [0, 1], [8, 9])

    def sizes():
        protocol.send("HeapProfiler.collectGarbage")
        found = {one["name"]: one["value"] for one in protocol.send("Performance.getMetrics")["metrics"]}
        return found["JSHeapUsedSize"] / 2**20, found["Nodes"], found["JSEventListeners"]

    for _ in range(10):
        round_trip()
    before = sizes()
    for _ in range(30):
        round_trip()
    after = sizes()
    assert after[0] < before[0] + 2.5, (before, after)
    assert after[1] < before[1] * 1.25, (before, after)
    assert after[2] < before[2] * 1.25, (before, after)


@contextmanager
def proxy(netloc, prefix):
    """A proxy that serves another server below a path, and passes bytes on as they come."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def pass_on(self) -> None:
            connection = HTTPConnection(netloc)
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            connection.request(self.command, self.path.removeprefix(prefix), body, headers)
            response = connection.getresponse()
            self.send_response(response.status)
            for name, value in response.getheaders():
                if name.lower() not in ("transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.end_headers()
            try:
                while part := response.read1():
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                pass  # the browser went away
            finally:
                connection.close()

        do_GET = do_POST = pass_on

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    # Browsers leave while streams are passed on.
    server.handle_error = lambda *_: None
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
