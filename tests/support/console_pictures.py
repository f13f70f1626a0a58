"""``python -m tests.support.console_pictures ADDRESS``: the pictures of the pages Try and Watch in deploy/images.

ADDRESS is a console's, with its token, as ``omdml demo --rate 40`` prints it. Call it on a quiet machine after some
two thousand clicks: the pictures show times, and how clicks kept for judging are ordered.
"""

from __future__ import annotations

import sys
from pathlib import Path

from playwright.sync_api import expect

from tests.support.browsers import Visit, chromium
from tests.support.consoles import SIZES, go_to

IMAGES = Path(__file__).parents[2] / "deploy" / "images"


def main(address: str, folder: Path = IMAGES) -> None:
    """Look at both pages as a visitor on a desktop does, with two answers marked as fitting and two as not."""
    width, height = SIZES["desktop"]
    with chromium() as browser:
        visit = Visit(browser.new_context(viewport={"width": width, "height": height}), address)
        page = visit.page
        answers = page.locator(".results > li")
        expect(answers).to_have_count(20)
        for rank, words in ((0, "✓ fits"), (1, "✓ fits"), (8, "✗ not"), (9, "✗ not")):
            answers.nth(rank).get_by_text(words).click()
        page.mouse.move(0, height - 1)
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_function(
            "[...document.querySelectorAll('.results img')].slice(0, 14).every((image) => image.complete)"
        )
        visit.shot(str(folder / "console-try.png"))
        go_to(page, "Watch")
        expect(page.locator(".u-legend").first).to_be_visible()
        # The number in the header glows for a moment.
        page.wait_for_timeout(1500)
        visit.shot(str(folder / "console-watch.png"))


if __name__ == "__main__":
    main(sys.argv[1])
