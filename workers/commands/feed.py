"""``omdml feed``: sends events and click logs, from files or standard input, to the feedback log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BufferedReader
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from omdml.workers.commands.options import configured, say

if TYPE_CHECKING:
    from omdml.streams.clicklogs.fields import Fields
    from omdml.streams.clicklogs.joining import JoinedPages
    from omdml.workers.configuration import config
    from omdml.workers.events.validation import Fed

OF_CLICK_LOGS = ("fields", "actions", "open_pages")


@click.command()
@click.argument("files", nargs=-1, type=click.File("rb"))
@click.option("--dry-run", is_flag=True, help="Check the events, and send nothing.")
@click.option(
    "--format", "kind", type=click.Choice(("json", "csv", "ubi", "metarank")), default="json", show_default=True,
    help="Format of the files. json: events of omdml, one on each line. The others are click logs, whose result pages "
    "become events. csv: a row for each item shown (columns page, query, item, clicked, and optionally position, "
    "model, at). ubi: JSON lines of OpenSearch's User Behavior Insights, queries and events. metarank: JSON lines of "
    "Metarank, rankings and interactions.",
)  # fmt: skip
@click.option(
    "--field", "fields", multiple=True, metavar="PART=PATH",
    help="Field of a click log in which a part of a page is found, such as query=query_attributes.item. PART==VALUE "
    "gives all pages the same value, such as model==shop. user=PATH says whose clicks these are. May be repeated.",
)  # fmt: skip
@click.option(
    "--action", "actions", multiple=True, metavar="NAME",
    help="Action of UBI, or type of Metarank's interactions, that counts as a click. May be repeated. [default: click]",
)  # fmt: skip
@click.option(
    "--open-pages", type=click.IntRange(min=1), metavar="N",
    help="Number of pages of a click log that wait for their clicks. A page is sent when there are N newer ones, or "
    "when the log ends. [default: 10000]",
)  # fmt: skip
@configured
def feed(
    configuration: config.Configuration, files: tuple[BinaryIO, ...], dry_run: bool, kind: str, **options: Any
) -> None:
    """Check events, and send them to the feedback log. They are JSON lines, from FILES or standard input.

    Several FILES of a click log are read as one log, in the given order. A click must come after its page.
    """
    configuration.require_models()

    from omdml.workers.events.validation import bounded_lines, send_events
    from omdml.workers.wiring.feedback_log import open_sink
    from omdml.workers.wiring.models import open_specs

    check_kind(kind, files, options)
    if not files and sys.stdin.isatty():
        say("reads from the terminal, one event on each line; Ctrl-D ends it, or name a file", err=True)
    specs = open_specs(configuration)
    sources: tuple[BinaryIO, ...] = files or (sys.stdin.buffer,)
    pages, page_fields = (None, None) if kind == "json" else joined(configuration, kind, sources, **options)
    sink = None if dry_run else open_sink(configuration.log)

    def results() -> Iterator[tuple[str, Fed]]:
        if pages:
            name = " ".join(file.name for file in sources)
            yield name, send_events(pages.lines(), specs, sink, name)
            return
        for file in sources:
            yield file.name, send_events(enumerate(bounded_lines(file), start=1), specs, sink, file.name)

    refused = 0
    for name, fed in results():
        say(f"{name}: {'would send' if dry_run else 'sent'} {fed.kinds}, refused {fed.total_refused}")
        for line, error in fed.refused:
            say(f"  line {line}: {error.reason}: {error}", err=True)
        if unread := fed.unread.counts:
            say(f"  fields that nothing reads: {fed.unread.in_words(unread)}", err=True)
        refused += fed.total_refused
    for cause, count in sorted(pages.left_out.items()) if pages else ():
        say(f"  left out: {cause}: {count:,}")
    for field in page_fields.missed if page_fields else ():
        say(f"  --field {field}: no record has this field, so nothing was taken from it", err=True)
    if sink is not None:
        sink.close()
    sys.exit(1 if refused else 0)


def check_kind(kind: str, files: Iterable[BinaryIO], options: Mapping[str, Any]) -> None:
    """Refuse options that this kind of file does not have, and CSV that is to be read as JSON."""
    if kind == "csv" and options["actions"]:
        raise click.UsageError("--action is about ubi and metarank; in CSV the column `clicked` says what was clicked")
    if kind != "json":
        return
    if misplaced := [name for name in OF_CLICK_LOGS if options[name]]:
        option = {"fields": "--field", "actions": "--action", "open_pages": "--open-pages"}[misplaced[0]]
        raise click.UsageError(f"{option} is about click logs: name their --format too")
    for file in files:
        refuse_csv(file)


def refuse_csv(file: BinaryIO) -> None:
    """Refuse a file of CSV that is read as JSON: otherwise each of its lines would be refused by itself."""
    if not file.name.lower().endswith(".csv"):
        return
    begin = cast(BufferedReader, file).peek(1).lstrip()
    if begin and not begin.startswith(b"{"):
        raise click.UsageError(f"{file.name} is CSV, and its first line is no event in JSON: pass --format csv")


def joined(
    configuration: config.Configuration,
    kind: str,
    sources: Iterable[BinaryIO],
    fields: tuple[str, ...],
    actions: tuple[str, ...],
    open_pages: int | None,
) -> tuple[JoinedPages, Fields]:
    """The pages of a click log, and the fields in which its records hold the parts of a page.

    A page that names no model belongs to the configured model, if there is only one.
    """
    from omdml.streams.clicklogs import csv_rows, json_lines
    from omdml.streams.clicklogs.fields import Fields
    from omdml.streams.clicklogs.joining import OPEN_PAGES, JoinedPages
    from omdml.workers.configuration.config import is_pattern
    from omdml.workers.events.validation import bounded_lines

    if kind == "csv":
        page_fields = Fields(csv_rows.CSV, fields)
        parts = (csv_rows.entries(lines, page_fields) for lines in numbered(sources, bounded_lines))
    else:
        default_fields, read_line = {
            "ubi": (json_lines.UBI, json_lines.ubi), "metarank": (json_lines.METARANK, json_lines.metarank),
        }[kind]  # fmt: skip
        page_fields, clicks = Fields(default_fields, fields), frozenset(actions or ("click",))
        parts = (
            json_lines.entries(lines, read_line, page_fields, clicks) for lines in numbered(sources, bounded_lines)
        )
    models = list(configuration.models)
    only = models[0] if len(models) == 1 and not is_pattern(models[0]) else None
    return JoinedPages(chain.from_iterable(parts), only, open_pages or OPEN_PAGES), page_fields


def numbered(
    sources: Iterable[BinaryIO], lines: Callable[[BinaryIO], Iterator[bytes]]
) -> Iterator[Iterator[tuple[int, bytes]]]:
    """The lines of each file. Their numbers go on from one file to the next."""
    count = 0

    def counted(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
        nonlocal count
        for line in lines(file):
            count += 1
            yield count, line

    return map(counted, sources)
