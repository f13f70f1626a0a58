"""Joins clicks with the pages that they were made on.

The newest pages are held open for their clicks. If there are too many, the oldest is closed and sent as an event.
"""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat

from omdml.comparisons import preferred
from omdml.errors import FeedbackError
from omdml.feedback import MAX_SHOWN, Page, encode
from omdml.streams.clicklogs.entries import Bad, Clicked, Entry, PassedOver, Shown

OPEN_PAGES = 10_000
# Shown items of all open pages together: about 100 MB if their ids are short.
OPEN_ITEMS = 1_000_000
# How many characters an event's id may have.
ID_CHARACTERS = 128


@dataclass
class OpenPage:
    """A page whose clicks may still come; ``line`` is where the log first names it.

    ``contradiction`` says what its records do not agree on; empty if they agree.
    """

    line: int
    query: str
    model: str
    at: float | None
    user: str | None
    # The rank of each item; None if the log gives no ranks.
    shown: dict[str, int | None] = field(default_factory=dict)
    clicked: dict[str, None] = field(default_factory=dict)
    contradiction: str = ""

    def compare(self, entry: Shown) -> None:
        """Note whether a later record of this page is about another search."""
        for name, first in (("query", self.query), ("model", self.model), ("user", self.user)):
            later = getattr(entry, name)
            if first is not None and later is not None and first != later and not self.contradiction:
                self.contradiction = f"its {name} is {first!r:.80} in one record and {later!r:.80} in another"
        self.user = self.user or entry.user


class JoinedPages:
    """The pages of a click log as events, in the order in which they begin.

    Parameters
    ----------
    entries
        What the log says, with the number of its line.
    model
        The model of pages that name none. If it is None too, such pages are refused.
    open_pages
        How many pages are held open. A click on a page that is older than these is left out.

    Attributes
    ----------
    left_out
        How much was not sent, counted by a phrase that says what and why.
    """

    def __init__(self, entries: Iterable[tuple[int, Entry]], model: str | None, open_pages: int = OPEN_PAGES) -> None:
        self._entries, self._model, self._most = entries, model, open_pages
        # A plain dict would be slow: after its first entries are deleted, looking for the next one passes all of them.
        self._open: OrderedDict[str, OpenPage] = OrderedDict()
        self._items = 0
        self.left_out: Counter[str] = Counter()

    def lines(self) -> Iterator[tuple[int, bytes | FeedbackError]]:
        """Each page as an event, and each record that cannot be read as an error, with the number of its first line."""
        for number, entry in self._entries:
            if isinstance(entry, Bad):
                yield number, entry.error
            elif isinstance(entry, PassedOver):
                self.left_out[entry.what] += 1
            elif isinstance(entry, Clicked):
                self._click(entry)
            else:
                try:
                    self._show(number, entry)
                except FeedbackError as error:
                    yield number, error
                while len(self._open) > self._most or self._items > OPEN_ITEMS:
                    yield from self._close(next(iter(self._open)))
        for name in list(self._open):
            yield from self._close(name)

    def _show(self, number: int, entry: Shown) -> None:
        page = self._open.get(entry.page)
        if page is None:
            model = entry.model or self._model
            if model is None:
                raise FeedbackError(
                    "the page names no model, and the configuration does not have exactly one: name the model with "
                    "--field model==NAME, or its field with --field model=PATH"
                )
            page = self._open[entry.page] = OpenPage(number, entry.query, model, entry.at, entry.user)
        page.compare(entry)
        ranks = entry.ranks or repeat(None, len(entry.items))
        for item, rank in zip(entry.items, ranks, strict=True):
            if item not in page.shown and len(page.shown) == MAX_SHOWN:
                self.left_out[f"items after the first {MAX_SHOWN:,} of a page"] += 1
            elif item not in page.shown:
                page.shown[item] = rank
                self._items += 1

    def _click(self, entry: Clicked) -> None:
        page = self._open.get(entry.page)
        if page is None:
            self.left_out[f"clicks on a page that is not among the last {self._most:,}"] += 1
        elif entry.item not in page.shown:
            self.left_out["clicks on items that their page did not show"] += 1
        else:
            page.clicked[entry.item] = None

    def _close(self, name: str) -> Iterator[tuple[int, bytes | FeedbackError]]:
        page = self._open.pop(name)
        self._items -= len(page.shown)
        if page.contradiction:
            # Pages of two searches that share a name, such as a page number, would share their clicks too.
            advice = "give each page of results a name of its own"
            yield page.line, FeedbackError(f"page {name!r:.80}: {page.contradiction}: {advice}")
            return
        if not page.clicked:
            self.left_out["pages without a click"] += 1
            return
        ranks = [rank for rank in page.shown.values() if rank is not None]
        if len(set(ranks)) < len(ranks) or len(ranks) not in (0, len(page.shown)):
            counts = f"{len(page.shown)} items, {len(ranks)} ranks, {len(set(ranks))} of them different"
            yield page.line, FeedbackError(f"page {name!r:.80}: {counts}, expected a different rank for each item")
            return
        event = Page(
            model=page.model,
            id=event_id(name),
            at=page.at,
            user=page.user,
            query=page.query,
            shown=tuple(page.shown),
            clicked=tuple(page.clicked),
            positions=tuple(ranks) or None,
        )
        if preferred(event):
            yield page.line, encode(event)
        else:
            self.left_out["pages on which nothing was passed over"] += 1


def event_id(page: str) -> str:
    """The id of a page's event. It follows from the page's name, so a log that is fed again is still learned once."""
    return page if len(page) <= ID_CHARACTERS else hashlib.blake2b(page.encode(), digest_size=16).hexdigest()
