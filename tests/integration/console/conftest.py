"""One demo and one browser for all tests of this folder, which have one group: one process runs them all."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from tests.support.browsers.browsers import Visit, chromium
from tests.support.browsers.consoles import SET_UP_S, SIZES, Demo, Site
from tests.support.processes import wait_for
from tests.support.shops import Shop


@pytest.fixture(scope="package")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("console")
    demo = Demo(folder, "demo", "--console", "--keep", str(folder / "kept"))
    demo.folder = folder / "kept"
    wait_for(lambda: "Ctrl-C ends the demo" in demo.said, "the demo to be ready", SET_UP_S, demo)
    yield demo
    demo.close()


@pytest.fixture(scope="package")
def browser():
    with chromium() as result:
        yield result


@pytest.fixture
def shop(tmp_path):
    return Shop(tmp_path)


@pytest.fixture
def site():
    site = Site()
    yield site
    site.stop()


@pytest.fixture
def visit(demo, browser):
    """Open the console; an error on its pages fails the test that opened them."""
    visits = []

    def open_console(address=demo.address, size="desktop", scheme="light", **options):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        visits.append(Visit(context, address))
        return visits[-1]

    yield open_console
    for visit in visits:
        visit.context.close()
        assert visit.errors == []
        assert visit.hosts == {urlsplit(demo.url).netloc}
