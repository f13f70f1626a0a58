"""Random pages of results, with clicks, for properties that hypothesis tests."""

from __future__ import annotations

from hypothesis import strategies as st

from omdml.feedback import Page


@st.composite
def pages(draw):
    """Pages with everything that one may hold; the query may be a result."""
    shown = draw(st.lists(st.sampled_from([f"i{n}" for n in range(12)] + ["q"]), min_size=1, unique=True))
    clicked = draw(st.lists(st.sampled_from(shown), min_size=1))
    ranks = st.lists(st.integers(1, 60), min_size=len(shown), max_size=len(shown), unique=True)
    positions = draw(st.none() | ranks)
    return Page(
        model="shop", query="q", shown=tuple(shown), clicked=tuple(clicked),
        positions=None if positions is None else tuple(positions),
    )  # fmt: skip
