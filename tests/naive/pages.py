"""Slow literal twin of what a result page stands for: one pair at a time, in the words of MATHS 14."""

from __future__ import annotations


def preferred_one_by_one(page):
    """Pairs (clicked, passed over)."""
    ranks = page.positions or range(len(page.shown))
    rank = {item: r for r, item in zip(ranks, page.shown, strict=True) if item != page.query}
    clicks = [item for item in rank if item in page.clicked]
    found = []
    for item in sorted(clicks, key=rank.get):
        for other in sorted(rank, key=rank.get):
            if other in page.clicked:
                continue
            above_last = rank[other] < max(rank[click] for click in clicks)
            directly_below_last = not above_last and not any(
                max(rank[click] for click in clicks) < rank[between] < rank[other] for between in rank
            )
            if above_last or directly_below_last:
                found.append((item, other))
    return found
