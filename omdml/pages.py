"""What a result page stands for: which of its items are preferred to which (MATHS 14). The one place that decides it.

People look at a page from the top, so an item that was not clicked says something only if somebody looked at it.
"""

from __future__ import annotations

from collections.abc import Sequence

from omdml.feedback import Page


def preferred(page: Page) -> list[tuple[str, str]]:
    """Pairs of a clicked item and one that was passed over for it, clicked-major, both in the page's order.

    An item was passed over if it was not clicked and stands above the last clicked item, or directly below it. The
    query itself is no result: where it was shown, it is left out. Empty if nothing that was looked at was passed over.

    Examples
    --------
    >>> preferred(Page(model="shop", query="q", shown=("a", "b", "c", "d", "e"), clicked=("c",)))
    [('c', 'a'), ('c', 'b'), ('c', 'd')]
    """
    shown, clicked = in_order(page), set(page.clicked)
    results = [item for item in shown if item != page.query]
    last = max((rank for rank, item in enumerate(results) if item in clicked), default=-2)
    looked_at = results[: last + 2]
    passed_over = [item for item in looked_at if item not in clicked]
    return [(item, other) for item in looked_at if item in clicked for other in passed_over]


def in_order(page: Page) -> Sequence[str]:
    """The shown items as people see them, from the top."""
    if page.positions is None:
        return page.shown
    return [item for _, item in sorted(zip(page.positions, page.shown, strict=True))]
