"""A real browser, and checks of what its pages must never do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from deploy.local.fetching import fetch

# A test waits only until its condition holds: patience costs time only if a test fails.
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)

# Without these options Chromium sends requests by itself. Its sandbox needs rights that an ordinary user may lack.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-component-update",
    "--disable-background-networking",
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run Debian's Chromium without a window."""
    result = fetch.chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(result.path), args=QUIET, env={**os.environ, **result.environment}
        )
        try:
            yield browser
        finally:
            browser.close()


class Visit:
    """A page of a visitor. It records errors, refused requests, and the hosts that it asked."""

    def __init__(self, context: BrowserContext, url: str) -> None:
        self.context, self.errors, self.hosts = context, [], set()
        self.page: Page = context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.page.goto(url)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(f"{message.text} {message.location.get('url', '')}".rstrip())

    def shot(self, path: str) -> None:
        """Save a picture of the page."""
        self.page.screenshot(path=path)
