"""Nodes and workers that are killed under open pages, and people who mark the same model at the same time."""

from __future__ import annotations

import json

import httpx
import pytest
from playwright.sync_api import expect

from tests.fault.asking import version_served
from tests.support.browsers.consoles import cards, check_looks, everywhere, expect_two_unsent_marks, mark_two, search
from tests.support.forks import ForkedProcess
from tests.support.nodes import CONFIGURATION, stored_shop
from tests.support.processes import free_port, wait_for
from tests.support.worlds import records_of

pytestmark = pytest.mark.xdist_group("console")


class Service:
    """A node and a worker of a shop, in processes of their own. Every event is learned."""

    def __init__(self, folder) -> None:
        self._folder, self.shop, port = folder, stored_shop(folder), free_port()
        self._file, self.url = folder / "omdml.toml", f"http://127.0.0.1:{port}"
        self._file.write_text(f"{CONFIGURATION.format(port=port)}[guard]\non = false\n")
        self._started = []
        self.node = self.start("node")
        wait_for(lambda: version_served(port) is not None, "the node to answer", 60, self.node)

    def start(self, name):
        """Start a node or a worker; returns its process."""
        self._started.append(ForkedProcess(self._folder, name, "--config", str(self._file), name=name))
        return self._started[-1]

    def log(self):
        return [json.loads(record.value) for record in records_of(self._file)]

    def close(self):
        for process in self._started:
            process.close()


@pytest.fixture
def service(tmp_path):
    service = Service(tmp_path)
    yield service
    service.close()


def marked(pages):
    """Have each page search from an item of its own, and mark two answers."""
    for number, page in enumerate(pages):
        search(page, f"i{number}")
        mark_two(page)


def send(page):
    page.get_by_role("button", name="Send").click()


def test_marks_made_while_the_node_is_killed_are_not_lost_and_not_sent_twice(service, browser):
    with everywhere(browser, f"{service.url}/console/") as pages:
        marked(pages)
        # The node has the marks, or not: it is killed before it can say so.
        service.node.pause()
        for page in pages:
            send(page)
        service.node.kill()
        for page in pages:
            expect(page.get_by_role("status")).to_contain_text("This node does not answer")
            expect(page.locator("#live")).to_have_text("this node is out of reach")
            expect(page.locator(".results .card")).to_have_count(20)
            expect_two_unsent_marks(page)
        check_looks(pages, "node-killed")
        service.shop.learn()
        version = service.shop.publish()
        service.start("node")
        for page in pages:
            expect(page.locator("#live")).to_have_text(f"version {version} is live")
            expect_two_unsent_marks(page)
            send(page)
            expect(page.get_by_role("status")).to_contain_text("Sent: 1 comparison")
        assert len({event["id"] for event in service.log()}) == len(pages)


def test_marks_are_learned_by_the_worker_after_one_that_was_killed(service, browser):
    worker = service.start("worker")
    with everywhere(browser, f"{service.url}/console/") as pages:
        marked(pages)
        worker.kill()
        for page in pages:
            send(page)
            page.mouse.move(0, 0)
        for page in pages:
            expect(page.get_by_role("status")).to_contain_text("look at Health")
        check_looks(pages, "worker-killed")
        service.start("worker")
        for page in pages:
            expect(page.locator("#live")).to_have_text(f"version {len(pages)} is live")
            expect(page.locator(".news")).to_contain_text("went live")
            expect(page.locator(".answers .soft").first).to_contain_text(f"version {len(pages)}, answered")
        assert len(service.log()) == len(pages)


def test_people_who_mark_at_the_same_time_all_see_what_comes_of_it(service, browser):
    service.start("worker")
    with everywhere(browser, f"{service.url}/console/", times=2) as pages:
        for number, page in enumerate(pages):
            search(page, f"i{number}")
            answers = page.locator(".results .card")
            for rank in range(number + 1):
                answers.nth(rank).get_by_text("✓ fits").click()
            answers.nth(19).get_by_text("✗ not").click()
        for page in pages:
            send(page)
        comparisons = sum(range(1, len(pages) + 1))
        for number, page in enumerate(pages):
            page.mouse.move(0, 0)
            expect(page.locator("#live")).to_have_text(f"version {comparisons} is live")
            expect(page.locator(".news")).to_contain_text("went live")
            expect(page.locator(".answers .soft").first).to_contain_text(f"version {comparisons}, answered")
            answer = httpx.get(f"{service.url}/search", params={"id": f"i{number}", "k": 20}).json()
            assert cards(page) == [item["id"] for item in answer["items"]]
        assert sorted(len(event["relevant"]) for event in service.log()) == [1, 2, 3, 4]
