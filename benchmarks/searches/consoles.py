"""What consoles cost a node, and how long a mark takes to change the order that its visitor sees."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
from playwright.sync_api import expect
from rich.console import Console

from omdml.feedback import Triplet
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.workers.demo.digits import load_digits
from omdml.workers.demo.services.environment import Servers, Stage, own_folder
from omdml.workers.demo.services.node_client import NodeClient
from tests.support.browsers.browsers import Visit, chromium
from tests.support.shops import Shop, listening

ROUNDS, ROUND_S = 6, 5.0
MODEL = "digits"
CONSOLES = 10
# Comparisons a second while searches are timed.
RATE = 20.0
# Seconds between two searches of a console (FOLLOW_MS in workers/node/console/pages/try.js), then how late one may be
# (live.js).
SEARCH_EVERY_S = 1.0
LATE_S = SEARCH_EVERY_S / 4
MARKS = 60
ITEMS = 100_000
# Scrolls through the grid with a wheel, and notes how long each frame took and how much the page held at most.
SCROLL = """async ([steps, step]) => {
  const grid = document.querySelector(".grid");
  const frames = [];
  let most = 0;
  let before = performance.now();
  for (let number = 0; number < steps; number += 1) {
    grid.scrollTop += step;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - before);
    before = now;
    most = Math.max(most, document.querySelectorAll("*").length);
  }
  return { frames, most, height: grid.scrollHeight };
}"""


def main(console: Console) -> None:
    console.rule("consoles")
    with (
        own_folder(None) as folder,
        Stage(load_digits(), {"learner": "dca"}, Servers(), folder, console.print) as stage,
    ):
        latencies(stage, console)
        marks(stage, console)
    with TemporaryDirectory() as place:
        many_items(Path(place), console)


def latencies(stage: Stage, console: Console) -> None:
    """Time searches one after the other, in turn with consoles and without, while comparisons come in."""
    stop = threading.Event()
    teacher = threading.Thread(target=teach, args=(stage, stop))
    teacher.start()
    results: dict[int, list[float]] = {0: [], CONSOLES: []}
    try:
        for _ in range(ROUNDS):
            for count, took in results.items():
                with consoles(stage.node, count):
                    took += searches(stage.node)
    finally:
        stop.set()
        teacher.join()
    console.print(f"\nsearches of {MODEL} while {RATE:g} comparisons a second are learned")
    for count, took in results.items():
        p50, p99 = np.percentile(took, [50, 99]) * 1000
        console.print(f"{count:3} consoles: p50 {p50:.2f} ms, p99 {p99:.2f} ms of {len(took):,}")
    console.print(f"p99 {np.percentile(results[CONSOLES], 99) / np.percentile(results[0], 99):.2f}x")


def teach(stage: Stage, stop: threading.Event) -> None:
    """Send comparisons of random digits, so that versions change while consoles look on."""
    draw, client = np.random.default_rng(0), NodeClient(stage.node, token=stage.token)
    while not stop.wait(1 / RATE):
        query, near, far = (f"digit-{row:04d}" for row in draw.choice(1797, 3, replace=False))
        client.send([Triplet(model=MODEL, query=query, relevant=near, irrelevant=far)])
    client.close()


def searches(url: str) -> list[float]:
    """Seconds of each search of a round."""
    draw, took, client = np.random.default_rng(1), [], NodeClient(url)
    end = time.perf_counter() + ROUND_S
    while (began := time.perf_counter()) < end:
        client.search(MODEL, f"digit-{draw.integers(1797):04d}", 20)
        took.append(time.perf_counter() - began)
    client.close()
    return took


@contextmanager
def consoles(url: str, count: int) -> Iterator[None]:
    """Open ``count`` streams of events. Each asks for a page of results as a console does, at most once a second."""
    context = get_context("spawn")
    stop, ready = context.Event(), context.Event()
    process = context.Process(target=look, args=(url, count, stop, ready), daemon=True)
    process.start()
    ready.wait(60)
    try:
        yield
    finally:
        stop.set()
        process.join(10)
        process.terminate()


def look(url: str, count: int, stop: Event, ready: Event) -> None:
    """Open the streams, and read them."""

    def follow() -> None:
        with httpx.Client(base_url=url, timeout=60) as client, client.stream("GET", "/events") as response:
            again_at = 0.0
            for line in response.iter_lines():
                if stop.is_set():
                    return
                if line.startswith("data:") and time.monotonic() >= again_at:
                    time.sleep(random.uniform(0, LATE_S))
                    again_at = time.monotonic() + SEARCH_EVERY_S
                    client.get("/search", params={"id": "digit-0001", "k": 20, "explain": "true"})

    for _ in range(count):
        threading.Thread(target=follow, daemon=True).start()
    time.sleep(1)
    ready.set()
    stop.wait()


def marks(stage: Stage, console: Console) -> None:
    """Time a visitor's marks in a real browser, from the press on Send to the new order on the page."""
    with chromium() as browser:
        page = Visit(browser.new_context(viewport={"width": 1280, "height": 800}), stage.console).page
        status, took = page.get_by_role("status"), []
        while len(took) < MARKS:
            expect(page.locator(".results .card")).to_have_count(20)
            for rank, kind in ((0, "yes"), (1, "yes"), (8, "no"), (9, "no")):
                page.locator(".results .card").nth(rank).locator(f".{kind}").click()
            page.evaluate("document.getElementById('said').replaceChildren()")
            page.get_by_role("button", name="Send").click()
            expect(status).to_have_text(re.compile("went live|No new version"), timeout=10_000)
            if answer := re.search(r"shows it ([\d.]+) (m?s) after", status.inner_text()):
                took.append(float(answer[1]) * (1 if answer[2] == "ms" else 1000))
            page.get_by_role("button", name="Any item").click()
            page.wait_for_timeout(100)
    p50, p95 = np.percentile(took, [50, 95])
    console.print(f"\na mark to the new order on the page, {MARKS} times: p50 {p50:.0f} ms, p95 {p95:.0f} ms")


def many_items(folder: Path, console: Console) -> None:
    """Time a catalogue of 100,000 items in a real browser: until it can be used, scrolled and searched."""

    def items(path: Path) -> object:
        draw = np.random.default_rng(0)
        features = {"shape": draw.normal(size=(ITEMS, 24)), "noise": draw.normal(size=(ITEMS, 8))}
        return build_catalogue(path, features, ids=[f"item-{row:06d}" for row in range(ITEMS)])

    shop = Shop(folder, items=items)
    with shop.serving() as node, listening(node) as server, chromium() as browser:
        began = time.perf_counter()
        page = Visit(browser.new_context(viewport={"width": 1280, "height": 800}), f"{server.url}/console/").page
        expect(page.locator(".results .card")).to_have_count(20)
        ready_s = time.perf_counter() - began
        # A page's height a frame, as fast as anybody scrolls; then jumps over thousands of rows.
        for name, step in (("scrolling", 300), ("jumping", 30_000)):
            seen = page.evaluate(SCROLL, [200, step])
            p50, p95 = np.percentile(seen["frames"], [50, 95])
            console.print(f"{name}: frames p50 {p50:.0f} ms, p95 {p95:.0f} ms, at most {seen['most']:,} elements")
        expect(page.locator(".grid button:not([data-id])")).to_have_count(0)
        began = time.perf_counter()
        page.get_by_label("Find an item by its id").fill("item-099999")
        page.locator(".grid button[data-id='item-099999']").click()
        expect(page.locator(".results[data-of='item-099999'] .card")).to_have_count(20)
        found_s = time.perf_counter() - began
        console.print(f"{ITEMS:,} items: usable after {ready_s:.2f} s; found by id and searched after {found_s:.2f} s")
