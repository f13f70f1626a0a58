"""What a quarter of an hour of use leaves behind in the memory of a console's page and of the node that serves it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, expect
from rich.console import Console

from benchmarks.searches.consoles import MODEL
from omdml.client import Client
from omdml.workers.demo.digits import load_digits
from omdml.workers.demo.services.environment import Servers, Stage, own_folder
from tests.support.browsers.browsers import Visit, chromium
from tests.support.browsers.consoles import PAGES, go_to, search

ITEMS = 1797
MINUTES = 15
MEASURED_EVERY_S = 60.0
# What is loaded once, by the page and by the node, is loaded after these minutes.
SETTLED_MIN = 5


def main(console: Console) -> None:
    """Use every page again and again while versions come; print the sizes of each minute, after garbage collection."""
    console.rule("long use of a console")
    stop = threading.Event()
    with (
        own_folder(None) as folder,
        Stage(load_digits(), {"learner": "dca"}, Servers(), folder, console.print) as stage,
        chromium() as browser,
    ):
        teacher = threading.Thread(target=teach, args=(stage, stop))
        teacher.start()
        try:
            visit = Visit(browser.new_context(viewport={"width": 1280, "height": 800}), stage.console)
            rows, rounds = use(visit, stage, console)
        finally:
            stop.set()
            teacher.join()
    # A busy node may refuse a look at the whole installation. The page says so and goes on.
    if wrong := [message for message in visit.wrong if not message.startswith("Failed to load resource")]:
        raise RuntimeError(f"the page reported {wrong}")
    first, last = (np.median(part, axis=0) for part in (rows[SETTLED_MIN : SETTLED_MIN + 5], rows[-5:]))
    console.print(
        f"{rounds:,} rounds of all pages in {MINUTES} minutes: heap {first[0]:.1f} MB -> {last[0]:.1f} MB, "
        f"elements {first[1]:.0f} -> {last[1]:.0f}, listeners {first[2]:.0f} -> {last[2]:.0f}, "
        f"node {first[3]:.0f} MB -> {last[3]:.0f} MB"
    )


def teach(stage: Stage, stop: threading.Event) -> None:
    """Have a new version come every half a second."""
    draw = np.random.default_rng(0)
    with Client(stage.node, stage.token, model=MODEL, retry_s=120) as client:
        while not stop.wait(0.5):
            client.triplet(*(f"digit-{row:04d}" for row in draw.choice(ITEMS, 3, replace=False)))


def use(visit: Visit, stage: Stage, console: Console) -> tuple[list[tuple[float, ...]], int]:
    """Do what a visitor does until the time is over; returns the sizes of each minute, and how many rounds it were."""
    protocol = visit.context.new_cdp_session(visit.page)
    protocol.send("Performance.enable")
    node = process_at(int(stage.node.rpartition(":")[2]))

    def sizes() -> tuple[float, ...]:
        protocol.send("HeapProfiler.collectGarbage")
        seen = {metric["name"]: metric["value"] for metric in protocol.send("Performance.getMetrics")["metrics"]}
        return seen["JSHeapUsedSize"] / 1e6, seen["Nodes"], seen["JSEventListeners"], resident_mb(node)

    began, rows, rounds = time.monotonic(), [], 0
    while len(rows) <= MINUTES:
        once_around(visit.page, f"digit-{rounds % ITEMS:04d}")
        rounds += 1
        if time.monotonic() - began >= len(rows) * MEASURED_EVERY_S:
            heap, elements, listeners, node_mb = sizes()
            console.print(
                f"minute {len(rows)}: heap {heap:.2f} MB, elements {elements:,.0f}, listeners {listeners:,.0f}, "
                f"node {node_mb:.1f} MB, {rounds:,} rounds"
            )
            rows.append((heap, elements, listeners, node_mb))
    return rows, rounds


def once_around(page: Page, item: str) -> None:
    """Look at every page; on Try, search from this item, mark four results, send."""
    for name in (*PAGES[1:], PAGES[0]):
        go_to(page, name)
    answers = page.locator(".results .card")
    expect(answers).to_have_count(20)
    search(page, item)
    # Nothing moves under a pointer that is about to mark.
    place = page.locator(".results").bounding_box()
    page.mouse.move(place["x"] + place["width"] / 2, place["y"] + 10)
    for rank, words in ((0, "✓ fits"), (1, "✓ fits"), (8, "✗ not"), (9, "✗ not")):
        answers.nth(rank).get_by_text(words).click()
    page.get_by_role("button", name="Send").click()
    # What is said of it passes. On a busy machine nobody may look in time.
    expect(page.locator(".send")).to_contain_text("Mark what fits")


def process_at(port: int) -> int:
    """The process that listens at this port of this machine."""
    wanted = f":{port:04X}"
    lines = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    inode = next(words[9] for words in lines if words[1].endswith(wanted) and words[3] == "0A")
    for path in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(path.readlink()) == f"socket:[{inode}]":
                return int(path.parts[2])
        except OSError:
            # Another user's process, or one that has ended.
            continue
    raise RuntimeError(f"no process listens at port {port}")


def resident_mb(process: int) -> float:
    """Memory in use, in MB, without what belongs to mapped files."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) * 1024 / 1e6
