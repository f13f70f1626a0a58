"""The page of a replay in a real browser."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.support.browsers.browsers import Visit, chromium
from tests.support.files.replays import LoggedShop
from tests.support.worlds import events

# One process runs them, with one browser.
pytestmark = pytest.mark.xdist_group("page of a replay")


@pytest.fixture(scope="module")
def browser():
    with chromium() as result:
        yield result


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The address of a replay's page."""
    folder = tmp_path_factory.mktemp("replay")
    shop = LoggedShop(folder, {"shop": {"learner": "lomdml", "rank": 3}}, guard="true")
    shop.tell(*events(1500))
    path = folder / "report.html"
    assert shop.omdml("--learner", "lomdml", "--learner", "diagonal", "--html", str(path)).exit_code == 0
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_of_a_replay_is_whole_and_accessible(browser, page, scheme, width):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True)
    visit = Visit(context, page)
    assert visit.page.locator("svg").count() == 2
    assert visit.page.locator("svg circle").count() > 10
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    result = Axe().run(visit.page)
    assert result.violations_count == 0, result.generate_report()
    assert (visit.errors, visit.hosts) == ([], {""})
    context.close()
