"""``omdml search`` and ``omdml compare``: show what a node answers, and what moved between two versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omdml.workers.commands.options import asking_node, print_table, say
from omdml.workers.configuration.wording import amount

if TYPE_CHECKING:
    from omdml.client import Answer, Client, Item, Moved


def as_object(_: click.Context, __: click.Parameter, text: str | None) -> dict[str, Any] | None:
    """Read an option as a JSON object; raises BadParameter if it is not one."""
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise click.BadParameter(f'{text!r} is not a JSON object, expected one such as {{"price": {{"lt": 20}}}}')
    return value


def as_texts(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str] | None:
    """Read ``COLUMN=WORDS`` options as words by column; raises BadParameter if a column is missing."""
    for text in texts:
        if "=" not in text:
            raise click.BadParameter(f"{text!r} names no column, expected COLUMN=WORDS such as title='red shirt'")
    return dict(text.split("=", 1) for text in texts) or None


def asking(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options by which it finds a node and a model."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print the node's answer as JSON."),
        click.option(
            "--token",
            default="",
            envvar="OMDML_NODE__TOKEN",
            show_envvar=True,
            help="Token of the node, if it asks for one.",
        ),
        click.option("--model", help="Name of the model; may be left out if the node has only one."),
        asking_node,
    ):
        command = option(command)
    return command


@click.command()
@click.argument("items", nargs=-1, metavar="[ID]...")
@click.option(
    "--features",
    callback=as_object,
    metavar="JSON",
    help='Raw vectors, such as {"color": [0.1, 0.9]}. With IDs too, the query is the mean of all.',
)
@click.option(
    "--text",
    "texts",
    multiple=True,
    callback=as_texts,
    metavar="COLUMN=WORDS",
    help="Words to search for, if the catalogue was built with --text COLUMN. May be repeated.",
)
@click.option(
    "--picture",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Picture file to search for, if the catalogue was built with --pictures.",
)
@click.option("-k", "k", default=10, show_default=True, type=click.IntRange(min=1), help="Number of items.")
@click.option("--offset", default=0, type=click.IntRange(min=0), help="Number of items to pass over.")
@click.option("--exclude", multiple=True, metavar="ID", help="Item that is never in the answer. May be repeated.")
@click.option(
    "--filter",
    "filter_",
    callback=as_object,
    metavar="JSON",
    help='Filter by attributes, such as {"price": {"lt": 20}} (deploy/SEARCH.md).',
)
@click.option("--field", "fields", multiple=True, metavar="NAME", help="Attribute to show. May be repeated.")
@click.option(
    "--expand", type=click.IntRange(min=0), help="Number of nearest items from which to search a second time."
)
@click.option("--each", is_flag=True, help="Answer each ID by itself, instead of the mean of all.")
@click.option("--explain", is_flag=True, help="Show what each distance is made of.")
@click.option("--task", help="Task in whose sense to search, if the model has tasks.")
@click.option("--version", type=click.IntRange(min=0), help="A version that is still stored, instead of the live one.")
@asking
def search(
    items: tuple[str, ...],
    features: Mapping[str, list[float]] | None,
    texts: Mapping[str, str] | None,
    picture: Path | None,
    filter_: Mapping[str, Any] | None,
    each: bool,
    node: str,
    token: str,
    model: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Show the items of a node that are closest to the query.

    The query is the item ID, the mean of several items, vectors, words or a picture. With --each, every ID is a query.
    """
    if not items and features is None and texts is None and picture is None:
        raise click.UsageError("the query is missing: give the ID of an item, --features, --text or --picture")
    if each and not (features is None and texts is None and picture is None):
        raise click.UsageError("--each is about IDs only: leave out --features, --text and --picture")
    options["filter"] = filter_
    with connected(node, token, model) as client:
        if each:
            answers = client.search_each(items, **options)
        else:
            query = None if not items else items[0] if len(items) == 1 else list(items)
            picture_bytes = read_picture(picture) if picture else None
            answers = [client.search(query, features=features, text=texts, picture=picture_bytes, **options)]
    answer = answers[0]
    if as_json:
        say(encoded(answers if each else answer))
        return
    rows = [row for page in answers for row in rows_of(page, **options)]
    columns = ["rank", "id", "distance", *options["fields"], *(["made of"] if options["explain"] else [])]
    if each:
        queries = [item for item, page in zip(items, answers, strict=True) for _ in page.items]
        columns, rows = ["query", *columns], [[query, *row] for query, row in zip(queries, rows, strict=True)]
    print_table(columns, rows)
    parent = f" (its parent {answer.parent} answers, version {answer.parent_version})" if answer.parent else ""
    say(f"{answer.model}: version {answer.version}{parent}, answered in {1000 * answer.took_s:.1f} ms")


def rows_of(answer: Answer, offset: int, fields: Sequence[str], explain: bool, **_: object) -> list[list[object]]:
    """A row for each item of an answer."""
    return [
        [rank, item.id, f"{item.distance:.4g}", *(in_a_cell(item.attributes.get(name, "")) for name in fields),
         *([made_of(item)] if explain else [])]
        for rank, item in enumerate(answer.items, start=offset + 1)
    ]  # fmt: skip


def in_a_cell(value: object) -> object:
    """An attribute as a table shows it: the texts of a list with commas between them."""
    return ", ".join(value) if isinstance(value, list) else value


@click.command()
@click.argument("item")
@click.argument("before", type=click.IntRange(min=0))
@click.argument("after", required=False, type=click.IntRange(min=0))
@click.option(
    "-k", "k", default=10, show_default=True, type=click.IntRange(min=1), help="Number of items of each answer."
)
@click.option("--task", help="Task in whose sense to search, if the model has tasks.")
@click.option(
    "--expand", type=click.IntRange(min=0), help="Number of nearest items from which to search a second time."
)
@asking
def compare(
    item: str,
    before: int,
    after: int | None,
    k: int,
    task: str | None,
    expand: int | None,
    node: str,
    token: str,
    model: str | None,
    as_json: bool,
) -> None:
    """Show what moved in an answer between two versions.

    It compares what a node answers to ITEM under version BEFORE and under version AFTER (default: the live one).
    """
    with connected(node, token, model) as client:
        if client.model is None:
            client.model = client.search(item, 1, task=task).model
        comparison = client.compare(item, before, after, k, task=task, expand=expand)
    if as_json:
        say(encoded(comparison))
        return
    print_table(
        ["id", f"version {comparison.before.version}", f"version {comparison.after.version}", "moved"],
        map(moved, comparison.moved),
    )
    if comparison.moved:
        what = f"{amount(len(comparison.moved), 'item')} of either version's first {k} moved"
    else:
        what = f"the first {k} are the same in both versions"
    say(f"{comparison.model}, like {comparison.id}: {what}")


def connected(node: str, token: str, model: str | None) -> Client:
    """A client that does not retry: whoever waits at a terminal can repeat the command."""
    from omdml.client import Client

    return Client(node, token, model=model, retry_s=0.0, timeout_s=30.0)


def encoded(answer: object) -> str:
    """An answer of a node as JSON."""
    import msgspec

    return msgspec.json.encode(answer).decode()


def made_of(item: Item) -> str:
    """The parts of a distance in per cent. A score may have negative parts; their absolute size counts."""
    whole = sum(map(abs, item.parts.values())) or 1.0
    return ", ".join(f"{name} {100 * abs(part) / whole:.0f} %" for name, part in item.parts.items())


def moved(item: Moved) -> tuple[str, object, object, str]:
    """A row about an item that moved. Ranks beyond the first thousand are not known."""
    if item.rose is None:
        how = "new" if item.before is None else "gone"
    else:
        how = f"up {item.rose}" if item.rose > 0 else f"down {-item.rose}"
    return item.id, item.before or "-", item.after or "-", how


def read_picture(path: Path) -> bytes:
    """The bytes of a picture that a node would accept; raises BadParameter if the file cannot be one."""
    from omdml.streams.bounded_files import read_regular
    from omdml.streams.describers.pictures import MAX_SENT_BYTES

    try:
        return read_regular(path, MAX_SENT_BYTES)
    except OSError as error:
        raise click.BadParameter(f"{path}: {error.strerror}", param_hint="--picture") from error
