"""``omdml letters``: events that could not be learned, and why."""

from __future__ import annotations

from collections import Counter

import click

from omdml.errors import FeedbackError
from streams.letters import Book, Position, position_of
from workers import config
from workers.commands.options import print_table, stored, when

SHOWN = 120  # characters of a payload in a list


def position(text: str) -> Position:
    """Topic id, partition and offset of ``TOPIC-ID/PARTITION/OFFSET``; raises BadParameter."""
    try:
        return position_of(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r}: expected TOPIC-ID/PARTITION/OFFSET, as omdml letters list shows it"
        ) from None


def read(configuration: config.Configuration) -> Book:
    """Everything among the dead letters."""
    from streams.letters import read_book
    from workers import wiring
    from workers.replay import read_whole

    log = wiring.open_letters_to_read(configuration.log)
    return read_book(record for records in (read_whole(log) if log else ()) for record in records)


@click.group()
def letters() -> None:
    """Events that could not be learned: the dead letters."""


@letters.command("list")
@click.option("--reason", help="Only those of this reason.")
@click.option("--model", help="Only those for this model.")
@click.option("--last", type=click.IntRange(min=1), help="So many only, the newest.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, whole.")
@stored
def list_letters(
    configuration: config.Configuration, reason: str | None, model: str | None, last: int | None, as_json: bool
) -> None:
    """Dead letters, oldest first, and how many there are of each reason."""
    book = read(configuration)
    found = [one for one in book.letters.values() if reason in (None, one.reason) and model in (None, one.model)]
    if as_json:
        for letter in found[-(last or 0) :]:
            click.echo(letter.encode())
        return
    rows = [
        (f"{partition}/{offset}", when(letter.at), letter.reason, letter.model or "",
         "sent again" if letter.position in book.resent else "",
         letter.payload[:SHOWN].decode(errors="replace"))
        for letter in found[-(last or 0) :] for partition, offset in [letter.position]
    ]  # fmt: skip
    print_table(("position", "logged", "reason", "model", "since then", "event"), rows)
    counts = Counter(letter.reason for letter in found)
    click.echo(", ".join(f"{count:,} {name}" for name, count in counts.most_common()) or "no dead letters")


@letters.command()
@click.argument("wanted", metavar="POSITION", type=position)
@stored
def explain(configuration: config.Configuration, wanted: Position) -> None:
    """All that is known of one letter, and whether its event would be learned now."""
    from workers import wiring
    from workers.resending import judge

    book = read(configuration)
    letter = book.letters.get(wanted)
    if letter is None:
        raise FeedbackError(f"there is no dead letter at {wanted[0]}/{wanted[1]}: see omdml letters list")
    again, verdict = wanted in book.resent, judge(letter, wiring.specs(configuration))
    would = "would be learned" if again else "would be learned: omdml letters resend"
    told = {
        "reason": letter.reason,
        "error": letter.error,
        "model": letter.model or "",
        "logged": when(letter.at),
        "key": (letter.key or b"").decode(errors="replace"),
        "headers": ", ".join(f"{name}={value.decode(errors='replace')}" for name, value in letter.headers),
        "sent again": "yes" if again else "no",
        "now": would if verdict.event else verdict.why,
        "event": letter.payload.decode(errors="replace"),
    }
    print_table(("", f"{wanted[0]}/{wanted[1]}"), [(name, text) for name, text in told.items() if text])


@letters.command()
@click.argument("positions", nargs=-1, metavar="[POSITION]...", type=position)
@click.option("--reason", help="Only those of this reason.")
@click.option("--model", help="Only those for this model.")
@click.option("--dry-run", is_flag=True, help="Send nothing, tell what would be sent.")
@stored
def resend(
    configuration: config.Configuration,
    positions: tuple[Position, ...],
    reason: str | None,
    model: str | None,
    dry_run: bool,
) -> None:
    """Send those events again that would be learned now, each at most once.

    They are learned as if they came now, after whatever was learned meanwhile.
    """
    from workers import wiring
    from workers.resending import chosen, judge

    specs = wiring.specs(configuration)
    candidates = chosen(read(configuration), reason, model, positions)
    verdicts = [(letter, judge(letter, specs)) for letter in candidates]
    sender = (
        None if dry_run or not any(verdict.event for _, verdict in verdicts) else wiring.open_sender(configuration.log)
    )
    sent, still = 0, Counter[str]()
    for letter, verdict in verdicts:
        if verdict.event is None:
            still[verdict.why] += 1
            continue
        if sender:
            sender.send(letter, verdict.event.model)
        sent += 1
    if sender:
        sender.close()
    click.echo(
        f"{'would send' if dry_run else 'sent'} {sent:,}, left {sum(still.values()):,} that would be refused again"
    )
    for why, count in still.most_common(20):
        click.echo(f"  {count:,}: {why}", err=True)
