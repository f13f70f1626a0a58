"""Slow literal twin of what a result page stands for: one pair at a time, in the words of MATHS 14."""

from __future__ import annotations


def preferred_one_by_one(page):
    """The pairs (clicked, passed over) of a page."""
    ranks = page.positions or range(len(page.shown))
    place = {item: rank for rank, item in zip(ranks, page.shown, strict=True) if item != page.query}
    results = []
    for clicked in sorted(place, key=place.get):
        if clicked not in page.clicked:
            continue
        for other in sorted(place, key=place.get):
            if other in page.clicked:
                continue
            above = place[other] < place[clicked]
            higher = sum(rank < place[other] for rank in place.values())
            lower = sum(rank > place[other] for rank in place.values())
            if above or higher >= lower:
                results.append((clicked, other))
    return results
