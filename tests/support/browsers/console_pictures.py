"""``python -m tests.support.browsers.console_pictures ADDRESS``: the pictures of the console in deploy/images.

ADDRESS is a console's, with its token, as the demo prints it. The address of ``omdml demo --console`` gives the picture
of the page Try, before the first click. The address of ``omdml demo --rate 40`` gives the picture of the page Watch.
Call it on a quiet machine after about two thousand clicks: it shows times, and how clicks kept for judging are ordered.
The address of ``omdml demo --pictures --rate 5`` gives the picture of the page Versions. Call it after about a thousand
clicks. The texts under this picture name the version that is on it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.support.browsers.browsers import Visit, chromium
from tests.support.browsers.consoles import SIZES, go_to

IMAGES = Path(__file__).parents[3] / "deploy" / "images"
# A green mug with stripes.
PRODUCT = "product-0048"


def main(address: str, folder: Path = IMAGES) -> None:
    """Look at the pages as a visitor on a desktop does."""
    width, height = SIZES["desktop"]
    with chromium() as browser:
        # The page's policy forbids scripts that are given as text, as the conditions below are.
        context = browser.new_context(viewport={"width": width, "height": height}, bypass_csp=True)
        visit = Visit(context, address)
        expect(visit.page.locator(".results .card")).to_have_count(20)
        if visit.page.title().endswith("products"):
            before_and_after(visit, folder)
        elif visit.page.locator("#live").inner_text() == "version 0 is live":
            first_page(visit, folder)
        else:
            watch(visit, folder)


def before_and_after(visit: Visit, folder: Path) -> None:
    """The answers to one query at the start and now."""
    page = visit.page
    go_to(page, "Versions")
    query = page.get_by_label("Query: an item's id")
    expect(query).not_to_have_value("")
    query.fill(PRODUCT)
    query.blur()
    expect(page.locator(".asked img")).to_have_attribute("alt", PRODUCT)
    page.wait_for_function("[...document.querySelectorAll('.two img, .asked img')].every((image) => image.complete)")
    page.locator(".card", has=page.locator(".two")).screenshot(path=str(folder / "console-before-after.png"))


def first_page(visit: Visit, folder: Path) -> None:
    """Two twos marked as fitting, and two eights as not."""
    page, answers = visit.page, visit.page.locator(".results .card")
    for rank, words in ((0, "✓ fits"), (1, "✓ fits"), (8, "✗ not"), (9, "✗ not")):
        answers.nth(rank).get_by_text(words).click()
    page.mouse.move(0, SIZES["desktop"][1] - 1)
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_function(
        "[...document.querySelectorAll('.results img')].slice(0, 14).every((image) => image.complete)"
    )
    visit.shot(str(folder / "console-try.png"))


def watch(visit: Visit, folder: Path) -> None:
    """The charts, and the newest figures."""
    page = visit.page
    go_to(page, "Watch")
    expect(page.locator(".u-legend").first).to_be_visible()
    # The number in the header glows for a moment.
    page.wait_for_timeout(1500)
    visit.shot(str(folder / "console-watch.png"))


if __name__ == "__main__":
    main(sys.argv[1])
