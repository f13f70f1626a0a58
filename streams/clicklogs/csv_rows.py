"""Logs in CSV: a header, then a row for each item of a page, which says whether it was clicked."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator

from omdml.errors import FeedbackError
from omdml.streams.clicklogs.entries import Bad, Clicked, Entry, Shown
from omdml.streams.clicklogs.fields import CONSTANT, Fields, seconds

CSV = {
    "page": "page",
    "query": "query",
    "item": "item",
    "position": "position",
    "clicked": "clicked",
    "model": "model",
    "at": "at",
    # Users are taken over only if --field user=COLUMN asks for it.
    "user": "",
}
NEEDED = ("page", "query", "item", "clicked")
RANK = re.compile(r"[1-9][0-9]{0,8}")
YES, NO = {"1", "true", "yes"}, {"0", "false", "no", ""}


def entries(lines: Iterable[tuple[int, bytes]], fields: Fields) -> Iterator[tuple[int, Entry]]:
    """Yield what each row says, with the number of its last line: an item was shown, and perhaps that it was clicked.

    Raises FeedbackError if the header cannot be read, or a column is missing. A row that cannot be read is yielded as
    :class:`Bad`; if it is no CSV, with the number of its first line.
    """
    number = 0

    def text() -> Iterator[str]:
        nonlocal number
        for number, line in lines:  # noqa: B007 - whoever reads a row says at which line it ends
            yield line.decode("utf-8-sig", "replace")

    reader = csv.reader(text(), strict=True)
    try:
        header = next(reader, [])
    except csv.Error as error:
        raise FeedbackError(
            f"the first line is not valid CSV ({error}), expected the names of the columns, such as {','.join(NEEDED)}"
        ) from error
    # A column that --field names must be there, too: without a user, omdml forget would not find a person's events.
    required = [part for part in CSV if part in NEEDED or fields.path(part) != CSV[part]]
    missing = [part for part in required if fields.path(part)[:1] != CONSTANT and fields.path(part) not in header]
    if missing:
        columns = f"{', '.join(header)!r:.200}"
        raise FeedbackError(
            f"no column {fields.path(missing[0])!r}, got {columns}: if the {missing[0]} is in another column, say so "
            f"with --field {missing[0]}=COLUMN"
        )
    while True:
        first = number + 1
        try:
            row = next(reader)
            if row:
                yield from ((number, entry) for entry in _of_row(row, header, fields))
        except StopIteration:
            return
        except csv.Error as error:
            # Rows behind a quote that is not closed are lost with it. Whoever mends the file must find the quote.
            lost = f": the row goes on to line {number}, as if a quote in it is not closed" if number > first else ""
            yield first, Bad(FeedbackError(f"not valid CSV: {error}{lost}"))
        except FeedbackError as error:
            yield number, Bad(error)


def _of_row(row: list[str], header: list[str], fields: Fields) -> list[Entry]:
    if len(row) != len(header):
        raise FeedbackError(f"{len(row)} cells, expected {len(header)} as in the header")
    record = dict(zip(header, row, strict=True))
    page, item = fields.text(record, "page"), fields.text(record, "item")
    rank, clicked = fields.optional(record, "position"), (fields.value(record, "clicked") or "").strip().lower()
    if rank is not None and not RANK.fullmatch(rank):
        raise FeedbackError(f"`{fields.path('position')}` is {rank!r:.80}, expected a rank, 1 or more")
    if clicked not in YES | NO:
        raise FeedbackError(f"`{fields.path('clicked')}` is {clicked!r:.80}, expected 1 or 0, true or false")
    shown = Shown(
        page,
        fields.text(record, "query"),
        [item],
        None if rank is None else [int(rank)],
        fields.optional(record, "model"),
        seconds(fields.value(record, "at"), fields.path("at")),
        fields.optional(record, "user"),
    )
    return [shown, Clicked(page, item)] if clicked in YES else [shown]
