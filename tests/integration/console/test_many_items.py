"""A catalogue of 100,000 items with labels is as usable as a small one."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import expect

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.workers.node.attributes.table import Attributes
from tests.support.browsers.consoles import opened, send_two_marks
from tests.support.shops import Shop, sent

pytestmark = pytest.mark.xdist_group("console")

ITEMS = 100_000
IDS = [f"item-{row:06d}" for row in range(ITEMS)]
# On a machine with nothing else to do it takes less than a second.
USABLE_MS = 15_000
# The page has about 800 elements; with all items it would have hundreds of thousands.
MOST_ELEMENTS = 1_500
# Scrolls to the end and back, and returns how many elements the page had at most.
SCROLL = """async (steps) => {
  const grid = document.querySelector(".grid");
  const end = grid.scrollHeight - grid.clientHeight;
  const places = Array.from({ length: steps + 1 }, (_, step) => (end * step) / steps);
  let most = 0;
  for (const place of [...places, ...places.reverse()]) {
    grid.scrollTop = place;
    await new Promise(requestAnimationFrame);
    most = Math.max(most, document.querySelectorAll("*").length);
  }
  return most;
}"""


def many(folder):
    draw = np.random.default_rng(0)
    features = {"shape": draw.normal(size=(ITEMS, 4)), "noise": draw.normal(size=(ITEMS, 2))}
    return build_catalogue(folder, features, ids=IDS)


def test_a_hundred_thousand_items_are_scrolled_found_and_marked(tmp_path, site, browser):
    shop = Shop(tmp_path, items=many)
    site.serve(shop, attributes=Attributes.of_items((item, {"label": f"Mug {item[5:]}"}) for item in IDS))
    with opened(browser, f"{site.url}/console/") as page:
        expect(page.locator(".results .card")).to_have_count(20, timeout=USABLE_MS)
        grid = page.get_by_role("listbox", name="Items")
        expect(grid.get_by_role("option", name="Mug 000000")).to_be_visible()
        assert page.evaluate(SCROLL, 50) < MOST_ELEMENTS
        expect(grid.get_by_role("option", name="Mug 000000")).to_be_visible()
        grid.get_by_role("option", name="Mug 000000").press("End")
        expect(grid.get_by_role("option", name="Mug 099999")).to_be_focused()
        page.get_by_label("Find an item by its id or label").fill("mug 077777")
        grid.get_by_role("option", name="Mug 077777").click()
        expect(page.locator(".results[data-of='item-077777'] .card")).to_have_count(20)
        send_two_marks(page)
        assert len(sent(shop)) == 1
