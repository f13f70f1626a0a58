"""``omdml letters``: events that could not be learned, and why."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING

import click

from omdml.workers.commands.options import print_table, say, stored
from omdml.workers.configuration.wording import amount, when

if TYPE_CHECKING:
    from omdml.streams.letters import Book
    from omdml.workers.configuration import config

# How many characters of a payload a list shows.
SHOWN = 120


@click.group()
def letters() -> None:
    """Show, resend and dismiss dead letters. These are events that could not be learned."""


@letters.command("list")
@click.option("--reason", help="Only letters with this reason.")
@click.option("--model", help="Only letters for this model.")
@click.option("--last", type=click.IntRange(min=1), help="Number of the newest letters to show.")
@click.option("--open", "still_open", is_flag=True, help="Only those that were neither sent again nor dismissed.")
@click.option("--json", "as_json", is_flag=True, help="Print each whole letter as a line of JSON.")
@stored
def list_letters(
    configuration: config.Configuration,
    reason: str | None,
    model: str | None,
    last: int | None,
    still_open: bool,
    as_json: bool,
) -> None:
    """Show dead letters, oldest first. It also shows how many there are of each reason, and how many are open."""
    from omdml.workers.operate.letters import chosen, oldest_first, since_then
    from omdml.workers.wiring.dead_letters import read_letters

    book = read_letters(configuration.log)
    unsettled = chosen(book.open, reason, model)
    listed = oldest_first(unsettled if still_open else chosen(book.letters.values(), reason, model))
    if as_json:
        for letter in listed[-(last or 0) :]:
            # ASCII, so that nothing that a sender wrote can control the terminal.
            click.echo(json.dumps(json.loads(letter.encode())).replace("\x7f", "\\u007f"))
        return
    rows = [
        (f"{partition}/{offset}", when(letter.at), letter.reason, letter.model or "",
         since_then(book, letter.position),
         letter.payload[:SHOWN].decode(errors="replace"))
        for letter in listed[-(last or 0) :] for partition, offset in [letter.position]
    ]  # fmt: skip
    if rows:
        print_table(("position", "logged", "reason", "model", "since then", "event"), rows)
    counts = Counter(letter.reason for letter in listed)
    summary = ", ".join(f"{count:,} {name}" for name, count in counts.most_common())
    say(f"{summary}; {len(unsettled):,} still open" if summary else none_of_these(book, reason, model, still_open))


def none_of_these(book: Book, reason: str | None, model: str | None, still_open: bool) -> str:
    """The line below an empty list. It says whether there are letters at all."""
    if not book.letters:
        return "no dead letters"
    kind = "".join(
        [" open" if still_open else "", " dead letter", f" with the reason {reason!r}" if reason else "",
         f" for the model {model!r}" if model else ""]
    )  # fmt: skip
    return f"no{kind}, of {amount(len(book.letters), 'dead letter')} in all"


@letters.command()
@click.argument("wanted", metavar="[TOPIC-ID/]PARTITION/OFFSET")
@stored
def explain(configuration: config.Configuration, wanted: str) -> None:
    """Show all that is known about one letter. It says what became of its event, and whether it would be learned
    now.
    """
    from omdml.workers.operate.letters import UsersRoom, fate, learnable, passed_letters, position_named
    from omdml.workers.wiring.dead_letters import read_letters
    from omdml.workers.wiring.models import open_specs
    from omdml.workers.wiring.stores import open_stores

    book = read_letters(configuration.log)
    position = position_named(book, wanted)
    letter = book.letters[position]
    specs, store = open_specs(configuration), open_stores(configuration)
    verdict = learnable(letter, specs, passed_letters([letter], store), UsersRoom(specs, store))
    # A dismissed letter is sent only if its position is named, so the position is always named here.
    outlook = f"would be learned: omdml letters resend {wanted}"
    if not verdict.event:
        outlook = f"would not be learned: {verdict.why}"
    fields = {
        "reason": letter.reason,
        "error": letter.error,
        "model": letter.model or "",
        "logged": when(letter.at),
        "key": (letter.key or b"").decode(errors="replace"),
        "headers": ", ".join(f"{name}={value.decode(errors='replace')}" for name, value in letter.headers),
        "sent again": "yes" if position in book.resent else "no",
        "dismissed": "yes" if position in book.dismissed else "",
        "now": fate(letter, book, store) or outlook,
        "event": letter.payload.decode(errors="replace"),
    }
    print_table(("", f"{position[0]}/{position[1]}"), [(name, text) for name, text in fields.items() if text])


@letters.command()
@click.argument("wanted", nargs=-1, metavar="[[TOPIC-ID/]PARTITION/OFFSET]...")
@click.option("--reason", help="Only letters with this reason.")
@click.option("--model", help="Only letters for this model.")
@click.option("--dry-run", is_flag=True, help="Send nothing; say how much would be sent.")
@stored
def resend(
    configuration: config.Configuration,
    wanted: tuple[str, ...],
    reason: str | None,
    model: str | None,
    dry_run: bool,
) -> None:
    """Send the events of open letters again. Each is sent at most once, and only if it would be learned now.

    Events are learned as if they came now, after everything that was learned since. The event of a dismissed letter is
    sent only if its position is named.

    The exit code is 0 even if events would be refused again. Their letters stay open, and the output says why.
    """
    from omdml.workers.operate.letters import chosen, position_named
    from omdml.workers.operate.letters import resend as send_again
    from omdml.workers.wiring.dead_letters import open_sender, read_letters
    from omdml.workers.wiring.models import open_specs
    from omdml.workers.wiring.stores import open_stores

    specs, store = open_specs(configuration), open_stores(configuration)
    # The sender is opened before the letters are read, because nobody else can send one of them from then on.
    with nullcontext() if dry_run else closing(open_sender(configuration.log, configuration.in_parts)) as sender:
        book = read_letters(configuration.log)
        positions = [position_named(book, text) for text in wanted]
        unsettled = [book.letters[each] for each in positions if each not in book.resent] if positions else book.open
        sent, refusals = send_again(chosen(unsettled, reason, model, positions), specs, store, sender)
    say(f"{'would send' if dry_run else 'sent'} {sent:,}; {refusals.total():,} would be refused again")
    for why, count in refusals.most_common(20):
        say(f"  {amount(count, 'event')}: {why.removeprefix('event: ')}", err=True)


@letters.command()
@click.argument("wanted", nargs=-1, metavar="[[TOPIC-ID/]PARTITION/OFFSET]...")
@click.option("--reason", help="Only letters with this reason.")
@click.option("--model", help="Only letters for this model.")
@click.option("--all", "every", is_flag=True, help="All open letters.")
@stored
def dismiss(
    configuration: config.Configuration, wanted: tuple[str, ...], reason: str | None, model: str | None, every: bool
) -> None:
    """Mark letters as dismissed. Do this if nobody can or will correct their events.

    omdml doctor no longer counts dismissed letters, and resend passes them over. They are not deleted: list and explain
    show them.
    """
    from omdml.workers.operate.letters import chosen, position_named, settle
    from omdml.workers.wiring.dead_letters import open_sender, read_letters

    if not (wanted or reason or model or every):
        raise click.UsageError("which letters? Name positions, --reason, --model, or --all")
    # The sender is opened before the letters are read, because nobody else can send one of them from then on.
    with closing(open_sender(configuration.log, configuration.in_parts)) as sender:
        book = read_letters(configuration.log)
        dismissed = chosen(book.open, reason, model, [position_named(book, text) for text in wanted])
        settle(dismissed, sender)
    say(f"{amount(len(dismissed), 'letter')} dismissed, {len(book.open) - len(dismissed):,} still open")
