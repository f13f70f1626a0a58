"""``omdml compare-live``: which of two models, or versions, people prefer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omdml.workers.commands.nodes.searches import connected, encoded
from omdml.workers.commands.options import print_table, say
from omdml.workers.configuration.wording import when

if TYPE_CHECKING:
    from omdml.client.answers import Counts, Experiment

NODE = "http://127.0.0.1:8080"


@click.command("compare-live")
@click.argument("name", required=False)
@click.option("--node", "urls", default=[NODE], show_default=True, multiple=True, metavar="URL",
              help="May be repeated: counts of several nodes are added up.")  # fmt: skip
@click.option("--token", default="", envvar="OMDML_NODE__TOKEN", show_envvar=True, help="If they ask for one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object an experiment, for programs.")
def compare_live(name: str | None, urls: tuple[str, ...], token: str, as_json: bool) -> None:
    """Show what came of the experiment NAME, or of all: which ranking wins more searches, and how sure that is."""
    found: dict[str, Experiment] = {}
    for url in urls:
        with connected(url, token, None) as client:
            for one in client.experiments():
                found[one.name] = added(found[one.name], one) if one.name in found else one
    if name is not None and name not in found:
        known = ", ".join(found) or "none"
        raise click.UsageError(
            f"no experiment {name!r} runs there; known: {known} (deploy/SEARCH.md says how to begin)"
        )
    for match in found.values():
        if name in (None, match.name):
            say(encoded(match)) if as_json else show(match)
    if not found:
        say("no experiment runs there: add [experiments.NAME] to the nodes' configuration (deploy/SEARCH.md)")


def show(one: Experiment) -> None:
    """Print the counts of an experiment and its verdict."""
    counts, (first, second) = one.counts, sides(one)
    print_table(
        [one.name, "searches won", "clicks"],
        [
            (first, counts.first, counts.clicks[0]),
            (second, counts.second, counts.clicks[1]),
            ("neither", counts.ties, ""),
        ],
    )
    failed = f", {counts.failed:,} more were answered by {first} alone" if counts.failed else ""
    say(f"{counts.searches:,} searches interleaved since {when(counts.since)}{failed}")
    say(sentence(one))


def sentence(one: Experiment) -> str:
    """The verdict in words."""
    first, second = sides(one)
    if one.share is None:
        return "no search was won yet: clicks come by POST /clicks, with the search that the answer names"
    share = f"{second} wins {one.share:.0%} of the decided searches (between {one.low:.0%} and {one.high:.0%})"
    if one.better is None:
        return f"not decided yet: {share}, at {one.confidence:.1%} confidence of the 95 % needed"
    return f"{second if one.better == 'second' else first} is better: {share}, at {one.confidence:.1%} confidence"


def sides(one: Experiment) -> tuple[str, str]:
    """What the two rankings are called."""
    second = one.against if one.against_version is None else f"{one.against} version {one.against_version:,}"
    return one.model, second


def added(one: Experiment, other: Experiment) -> Experiment:
    """Both nodes' counts as one, judged again."""
    import msgspec

    from omdml.retrieval.interleaving import verdict

    counts = together(one.counts, other.counts)
    judged = verdict(counts.first, counts.second)
    return msgspec.structs.replace(
        one,
        counts=counts,
        better=None if judged.better is None else ("first", "second")[judged.better],
        share=judged.share,
        low=judged.low,
        high=judged.high,
        confidence=judged.confidence,
    )


def together(one: Counts, other: Counts) -> Counts:
    """The sum of two nodes' counts."""
    from omdml.client.answers import Counts

    clicks = one.clicks[0] + other.clicks[0], one.clicks[1] + other.clicks[1]
    whole = {
        name: getattr(one, name) + getattr(other, name) for name in ("searches", "failed", "first", "second", "ties")
    }
    return Counts(since=min(one.since, other.since), clicks=clicks, **whole)
