"""Does what visitors do on the console's pages, with the demo behind them."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import expect

from tests.support.processes import ROOT, Process

# With kernels compiled.
SET_UP_S = 180.0
PAGES = ("Try", "Watch", "Versions", "A/B", "Dead letters", "Health")
SIZES = {"desktop": (1280, 800), "phone": (390, 844)}
# What is said once marks were learned, or held out.
SETTLED = re.compile("went live|No new version")
SCREENSHOTS = ROOT / "build" / "screenshots"


class Demo(Process):
    """``omdml demo --console``, and the address it prints."""

    @property
    def address(self) -> str:
        return re.search(r"console: (\S+)", self.said)[1]

    @property
    def url(self) -> str:
        """The address of the node."""
        return self.address.partition("/console/")[0]


def cards(page):
    """The ids of the answers, in order."""
    return [card.get_attribute("data-id") for card in page.locator(".results > li").all()]


def search(page, item):
    """Search from an item, by its id."""
    page.get_by_label("Find an item by its id").fill(item)
    page.get_by_role("listbox", name="Items").locator(f"button[data-id='{item}']").click()
    expect(page.locator(f".results[data-of='{item}'] > li")).to_have_count(20)


def mark(page, fits, fits_not):
    """Mark answers by their rank, send, and wait for the next version; returns the message about it."""

    def send():
        answers = page.locator(".results > li")
        for rank in fits:
            answers.nth(rank).get_by_text("✓ fits").click()
        for rank in fits_not:
            answers.nth(rank).get_by_text("✗ not").click()
        page.get_by_role("button", name="Send").click()

    return learned(page, send)


def mark_two(page):
    """Mark the first answer as fitting, and the second as not."""
    answers = page.locator(".results > li")
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
        if "went live" in (said := page.get_by_role("status").inner_text()):
            return said
    raise AssertionError("nothing was learned of four marks")


def go_to(page, name):
    page.get_by_role("link", name=name, exact=True).click()
    expect(page.get_by_role("link", name=name, exact=True)).to_have_attribute("aria-current", "page")


def live(demo):
    """The version that answers."""
    return httpx.get(f"{demo.url}/models", verify=False).json()["models"][0]["version"]
