"""Reasons that keep a version from going live: a code for metrics, which never changes, and what messages say."""

from __future__ import annotations

# The words that each message about a reason contains, by the code of the reason.
WORDS = {
    "worse": "not as good on",
    "leap_norm": "the norm of",
    "leap_spread": "the spread of",
    "weight_moved": "of the weight moved",
    "not_finite": "holds values that are not finite",
}


def code_of(withheld: str) -> str:
    """The code in :data:`WORDS` of what keeps a version from going live; ``ok`` if nothing does."""
    return next((code for code, words in WORDS.items() if words in withheld), "other") if withheld else "ok"
