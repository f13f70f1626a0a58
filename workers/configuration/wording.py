"""Times, spans and amounts as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def when(seconds: float | None) -> str:
    """A time in seconds since the epoch; empty for none.

    Senders name times, and may name any number: one that no calendar has stays a number.

    Examples
    --------
    >>> when(1.5), when(1e308)
    ('1970-01-01 00:00:01 UTC', '1e+308 s since 1970')
    """
    try:
        return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{seconds:g} s since 1970"


def day(seconds: float | None) -> str:
    """The day of a time in seconds since the epoch; empty for none."""
    return when(seconds)[:10]


def span(seconds: float) -> str:
    """How long something has lasted, in its largest unit.

    Examples
    --------
    >>> span(59.4), span(61), span(7300), span(3 * 86400 + 5)
    ('59 s', '1 min', '2 h', '3 d')
    """
    for size, unit in SPANS:
        if seconds >= size:
            return f"{seconds // size:,.0f} {unit}"
    return f"{max(0, int(seconds))} s"


def amount(count: int, what: str, several: str = "") -> str:
    """A number of something, in words; ``several`` is the plural if it is not made with an s.

    Examples
    --------
    >>> amount(1, "pair"), amount(2000, "pair")
    ('1 pair', '2,000 pairs')
    """
    return f"{count:,} {what if count == 1 else several or f'{what}s'}"


def amount_is(count: int, what: str) -> str:
    """A number of something and its verb.

    Examples
    --------
    >>> amount_is(1, "event"), amount_is(2, "event")
    ('1 event is', '2 events are')
    """
    return f"{amount(count, what)} {'is' if count == 1 else 'are'}"


# Why a node stays with a newer version than its store has, and what ends it.
STORE_FELL_BACK = (
    "the store was emptied, replaced or restored. The node follows the store again once a worker has learned "
    "as much again. If the store is not empty and is to stay as it is, restart the node to follow it"
)


def learn_again(model: str) -> str:
    """What to do if nothing that a model has learned fits its catalogue or its settings."""
    return (
        f"stop the workers, learn the model again from the log (omdml replay --model {model} --publish --replace), "
        "then start the workers and restart the nodes"
    )
