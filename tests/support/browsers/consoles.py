"""What visitors do on the console's pages, with the demo behind them."""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.support.browsers.browsers import Visit
from tests.support.processes import ROOT, Process
from tests.support.shops import listening

# Includes compiling the kernels.
SET_UP_S = 180.0
PAGES = ("Try", "Watch", "Versions", "A/B", "Dead letters", "Health")
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
# The page says one of these once marks were learned, or held out.
SETTLED = re.compile("went live|No new version")
# Two of four pairs show everything: in style.css the size changes no colour, and the scheme changes only colours.
LOOKS = [("desktop", "light"), ("phone", "dark")]
SCREENSHOTS = ROOT / "build" / "screenshots"
# Dead letters and Health are answered by another process, which may have to start, and has a low priority.
OFFICE_MS = 120_000
# What each page shows once all that it asks the node for was answered.
SHOWS = {
    "Watch": "Nothing was compared since the worker started",
    "Versions": "Before the first click (version 0)",
    "A/B": "No experiment runs on this node",
    "Dead letters": re.compile(r"No open dead letters|\d+ letters?,"),
    "Health": "checks found nothing wrong",
}


class Demo(Process):
    """``omdml demo --console``, and the address it prints."""

    @property
    def address(self) -> str:
        return re.search(r"console: (\S+)", self.said)[1]

    @property
    def url(self) -> str:
        return self.address.partition("/console/")[0]


class Site:
    """An address at which one node after another answers."""

    def __init__(self) -> None:
        self._running, self.port, self.node = ExitStack(), 0, None

    def serve(self, shop, token="", attributes=None, **access):
        """Have a new node of this shop answer; ``attributes`` are those of its items."""
        options = {"attributes": lambda model: attributes} if attributes else {}
        self.node = self._running.enter_context(shop.serving(**options))
        server = self._running.enter_context(listening(self.node, token, port=self.port, **access))
        self.url, self.port = server.url, int(server.url.rpartition(":")[2])

    def stop(self):
        """End the node, so that nobody answers at its address."""
        self._running.close()


@contextmanager
def opened(browser, url, size="desktop", **options):
    """A page of the console. Errors of scripts fail; refusals, which browsers log too, do not."""
    width, height = SIZES[size]
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    visit = Visit(context, url)
    yield visit.page
    assert [message for message in visit.errors if "Failed to load resource" not in message] == []
    context.close()


@contextmanager
def everywhere(browser, url, times=1):
    """``times`` pages in each of LOOKS, all open at once."""
    with ExitStack() as pages:
        yield [
            pages.enter_context(opened(browser, url, size, color_scheme=scheme, bypass_csp=True))
            for size, scheme in LOOKS * times
        ]


def check_looks(pages, name):
    """Save a picture of the page in each of LOOKS, and check that it fits the screen and that everybody can read it."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    for (size, scheme), page in zip(LOOKS, pages, strict=True):
        page.screenshot(path=SCREENSHOTS / f"{name}-{size}-{scheme}.png")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (size, scheme)
        result = Axe().run(page)
        assert result.violations_count == 0, f"{size}, {scheme}: {result.generate_report()}"


def cards(page):
    """The ids of the answers, in order."""
    return [card.get_attribute("data-id") for card in page.locator(".results .card").all()]


def search(page, item):
    """Search from an item, by its id."""
    page.get_by_label("Find an item by its id").fill(item)
    page.get_by_role("listbox", name="Items").locator(f"button[data-id='{item}']").click()
    expect(page.locator(f".results[data-of='{item}'] .card")).to_have_count(20)


def mark(page, fits, fits_not):
    """Mark answers by their rank, send, and wait for the next version; returns the message about it."""

    def send():
        answers = page.locator(".results .card")
        for rank in fits:
            answers.nth(rank).get_by_text("✓ fits").click()
        for rank in fits_not:
            answers.nth(rank).get_by_text("✗ not").click()
        page.get_by_role("button", name="Send").click()

    return learned(page, send)


def mark_two(page):
    """Mark the first answer as fitting, and the second as not."""
    answers = page.locator(".results .card")
    answers.nth(0).get_by_text("✓ fits").click()
    answers.nth(1).get_by_text("✗ not").click()


def send_two_marks(page):
    """Mark two answers, and send the marks to a node behind which nobody learns."""
    mark_two(page)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")


def learned(page, send):
    """Send marks until some are learned: the guard keeps one in fifty, drawn at random, to measure with."""
    for _ in range(4):
        page.evaluate("document.getElementById('said').replaceChildren()")
        send()
        expect(page.get_by_role("status")).to_have_text(SETTLED)
        if "went live" in (message := page.get_by_role("status").inner_text()):
            return message
    raise AssertionError("nothing was learned from four rounds of marks")


def expect_two_unsent_marks(page):
    """Expect that one answer is marked as fitting and one as not, and that neither was sent yet."""
    expect(page.locator(".send")).to_contain_text("1 marked as fitting, 1 as not fitting.")


def go_to(page, name):
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")


def live(demo):
    """The version that the node of the demo answers with."""
    return httpx.get(f"{demo.url}/models", verify=False).json()["models"][0]["version"]
