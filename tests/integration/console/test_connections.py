"""The console asks for a token once, for nothing while nobody looks, and works behind a proxy."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from omdml.workers.configuration.access import NamedToken
from tests.support.browsers.browsers import Visit
from tests.support.browsers.consoles import OFFICE_MS, SETTLED, SHOWS, go_to, mark, opened, send_two_marks
from tests.support.catalogues.products import described_catalogue
from tests.support.processes import wait_for
from tests.support.shops import Shop, listening, sent

pytestmark = pytest.mark.xdist_group("console")


def test_a_tab_that_nobody_sees_asks_for_nothing(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/").page
        expect(page.locator(".results .card")).to_have_count(20)
        open_streams = node.steps._listeners
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
    answers = page.locator(".results .card")
    answers.nth(0).get_by_text("✓ fits").click()
    answers.nth(1).get_by_text("✗ not").click()
    page.get_by_role("button", name="Send").click()
    page.get_by_label("Token", exact=True).fill(demo.address.partition("token=")[2])
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_role("status")).to_have_text(SETTLED)
    mark(page, [0], [1])
    # The browser logs the one answer 401.
    assert [message for message in opened.errors if "401" in message] == opened.errors
    assert len(opened.errors) == 1
    opened.errors.clear()


def test_a_private_node_asks_for_the_token_before_it_tells_anything(tmp_path, browser):
    shop, token = Shop(tmp_path), "0123456789abcdef-private"
    with shop.serving() as node, listening(node, token, private=True) as server:
        context = browser.new_context()
        opened = Visit(context, f"{server.url}/console/")
        page = opened.page
        page.get_by_label("Token", exact=True).fill(token)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator(".results .card")).to_have_count(20)
        # What goes live comes as a stream of events, for which browsers can send no token.
        shop.learn()
        shop.publish()
        node._refresher.refresh("shop")
        expect(page.locator("#live")).to_contain_text("version 20 is live")
        # The first request has no token, and the browser logs the refusal.
        assert len(opened.errors) == 1
        assert "401" in opened.errors[0]
        context.close()


def test_who_will_not_give_a_token_is_asked_again_only_on_request(tmp_path, browser):
    shop, token = Shop(tmp_path), "0123456789abcdef-private"
    with shop.serving() as node, listening(node, token, private=True) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/").page
        page.get_by_role("button", name="Cancel").click()
        again = page.get_by_role("button", name="Try again")
        expect(again).to_be_visible()
        page.wait_for_timeout(2500)
        expect(page.get_by_role("dialog")).to_be_hidden()
        again.click()
        page.get_by_label("Token", exact=True).fill(token)
        page.get_by_role("button", name="Go on").click()
        expect(page.locator(".results .card")).to_have_count(20)
        context.close()


def test_a_token_with_a_wider_role_takes_the_place_of_the_one_before(tmp_path, browser):
    tokens = {role: NamedToken(token=f"0123456789abcdef-{role}", role=role) for role in ("feedback", "operator")}
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node, tokens=tokens) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/#token=0123456789abcdef-feedback").page
        go_to(page, "Versions")
        page.get_by_role("button", name="Pin this").click()
        expect(page.get_by_role("status")).to_contain_text("this needs the role operator")
        page.get_by_role("button", name="Token", exact=True).click()
        page.get_by_label("Token", exact=True).fill("0123456789abcdef-operator")
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("button", name="Pin this").click()
        expect(page.get_by_text("pinned: newer versions do not go live")).to_be_visible()
        context.close()


def test_an_address_with_a_token_works_in_a_tab_that_is_open(tmp_path, browser):
    shop, token = Shop(tmp_path), "0123456789abcdef-link"
    with shop.serving() as node, listening(node, token) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/").page
        expect(page.locator(".results .card")).to_have_count(20)
        page.goto(f"{server.url}/console/#token={token}")
        # By now the page may have added the query that it shows.
        expect(page).not_to_have_url(re.compile("token"))
        send_two_marks(page)
        context.close()


def test_a_token_of_few_requests_a_second_makes_the_console_slow_not_useless(tmp_path, site, browser):
    shop = Shop(tmp_path)
    few = NamedToken(token="0123456789abcdef-few", role="feedback", max_per_s=2.0)
    site.serve(shop, tokens={"few": few}, private=True)
    with opened(browser, f"{site.url}/console/#try/shop/i5/token={few.token}") as page:
        send_two_marks(page)
        assert len(sent(shop)) == 1


def test_pictures_that_a_token_may_not_ask_for_yet_come_later(tmp_path, site, browser):
    shop = Shop(tmp_path, items=described_catalogue)
    few = NamedToken(token="0123456789abcdef-few", role="feedback", max_per_s=4.0)
    site.serve(shop, tokens={"few": few}, private=True)
    came = "all => all.filter((one) => one.naturalWidth > 0).length"
    with opened(browser, f"{site.url}/console/#token={few.token}") as page:
        pictures = page.locator(".results .card img")
        wait_for(lambda: pictures.evaluate_all(came) == 20, "the pictures", 60)


def test_thumbnails_whose_atlas_was_refused_come_later(tmp_path, site, browser):
    answers = []

    def refuse_once(route):
        if not answers:
            route.fulfill(status=429, json={"error": "too_many", "message": "send this again later"})
        else:
            route.continue_()

    site.serve(Shop(tmp_path, items=described_catalogue))
    with opened(browser, "about:blank") as page:
        page.route(re.compile("/atlas"), refuse_once)
        page.on("response", lambda response: answers.append(response.status) if "/atlas" in response.url else None)
        page.goto(f"{site.url}/console/")
        thumbnail = page.get_by_role("listbox", name="Items").locator(".picture").first
        expect(thumbnail).to_have_css("background-image", re.compile("/atlas"))
        assert (answers[0], answers[-1]) == (429, 200)


def test_the_console_works_in_a_browser_that_keeps_nothing(tmp_path, browser):
    shop, token = Shop(tmp_path), "0123456789abcdef-nothing"
    refuse = "{ get() { throw new DOMException('Access is denied', 'SecurityError'); } }"
    with shop.serving() as node, listening(node, token) as server:
        context = browser.new_context()
        context.add_init_script(f"Object.defineProperty(window, 'sessionStorage', {refuse})")
        opened = Visit(context, f"{server.url}/console/#token={token}")
        send_two_marks(opened.page)
        assert opened.errors == []
        context.close()


def test_the_console_works_behind_a_proxy_that_puts_a_path_before_it(demo, browser):
    with proxy(urlsplit(demo.url).netloc, "/inner/omdml") as url:
        context = browser.new_context()
        # The root leads to the console, wherever it is.
        visit = Visit(context, f"{url}/inner/omdml/#token={demo.address.partition('token=')[2]}")
        page = visit.page
        mark(page, [0], [1])
        assert page.evaluate("[...document.querySelectorAll('.results img')].some((image) => image.naturalWidth > 0)")
        for name, shows in SHOWS.items():
            go_to(page, name)
            expect(page.get_by_role("main")).to_contain_text(shows, timeout=OFFICE_MS)
        assert (visit.errors, visit.hosts) == ([], {urlsplit(url).netloc})
        context.close()


def test_a_node_whose_streams_a_proxy_ends_is_not_called_away(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server, proxy(urlsplit(server.url).netloc, "", ends=True) as url:
        context = browser.new_context()
        page = Visit(context, f"{url}/console/").page
        expect(page.locator("#live")).to_have_text("version 0 is live")
        page.evaluate(
            "window.told = []; const live = document.getElementById('live');"
            "new MutationObserver(() => told.push(live.textContent)).observe(live, {childList: true})"
        )
        for _ in range(4):
            with page.expect_request(re.compile("/events$")):
                pass
        assert set(page.evaluate("told")) == {"version 0 is live"}
        context.close()


@contextmanager
def proxy(netloc, prefix, ends=False):
    """A proxy that serves another server below a path, and passes bytes on as they come.

    If ``ends``, it ends each stream of events after its first part.
    """

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
                    if ends and self.path.endswith("/events"):
                        break
            except OSError:
                # The browser went away.
                pass
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


def test_a_stream_that_was_ended_while_it_signed_in_is_not_opened_again(tmp_path, browser):
    shop = Shop(tmp_path)
    with shop.serving() as node, listening(node) as server:
        context = browser.new_context()
        page = Visit(context, f"{server.url}/console/").page
        expect(page.locator(".results .card")).to_have_count(20)
        # A stream that cannot be opened, then a node that answers the sign-in only after the page has ended the stream.
        streams = page.evaluate(
            """async () => {
                let streams = 0;
                window.EventSource = class extends EventTarget {
                    static CLOSED = 2;
                    readyState = 2;
                    constructor() { super(); streams += 1; setTimeout(() => this.dispatchEvent(new Event("error"))); }
                    close() {}
                };
                const { askForToken, takeToken } = await import("./api.js");
                location.hash = "token=0123456789abcdef-any";
                takeToken();
                const signing = new Promise((asked) => {
                    const send = window.fetch;
                    window.fetch = (url, options) => String(url).endsWith("/session")
                        ? new Promise((answer) => { asked(() => answer(new Response(null, { status: 204 }))); })
                        : send(url, options);
                });
                const { follow } = await import("./live.js");
                const end = follow(() => {}, () => {}, () => {});
                const answer = await signing;
                end();
                answer();
                await new Promise((resolve) => { setTimeout(resolve, 100); });
                return streams;
            }"""
        )
        assert streams == 1
        context.close()
