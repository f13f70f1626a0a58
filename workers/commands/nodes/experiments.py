"""``omdml compare-live``: which of two models, or versions, people prefer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omdml.workers.commands.nodes.searches import connected, encoded
from omdml.workers.commands.options import NEAR, from_file, near_url, print_table, say
from omdml.workers.configuration.wording import amount, when

if TYPE_CHECKING:
    from collections.abc import Callable

    from omdml.client.answers import Counts, Experiment
    from omdml.workers.configuration.config import Configuration


@click.command("compare-live")
@click.argument("name", required=False)
@click.option("--node", "urls", multiple=True, metavar="URL",
              help=f"URL of a node. May be repeated: counts of several nodes are added up. {NEAR}")  # fmt: skip
@click.option(
    "--token", default="", envvar="OMDML_NODE__TOKEN", show_envvar=True, help="Token of the nodes, if they ask for one."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each experiment.")
@from_file
def compare_live(
    load: Callable[..., Configuration], name: str | None, urls: tuple[str, ...], token: str, as_json: bool
) -> None:
    """Show which ranking wins an experiment, and how sure that is. Without NAME, it shows all experiments."""
    urls = urls or (near_url(load),)
    experiments: dict[str, Experiment] = {}
    for url in urls:
        with connected(url, token, None) as client:
            for experiment in client.experiments():
                experiments[experiment.name] = (
                    added(experiments[experiment.name], experiment) if experiment.name in experiments else experiment
                )
    if name is not None and name not in experiments:
        running = ", ".join(experiments) or "none"
        raise click.UsageError(
            f"no experiment {name!r} runs at {', '.join(urls)}; these run: {running} "
            "(deploy/SEARCH.md says how to begin one)"
        )
    for experiment in experiments.values():
        if name in (None, experiment.name):
            say(encoded(experiment)) if as_json else show(experiment)
    if not experiments:
        say("no experiment is running: add [experiments.NAME] to the nodes' configuration (deploy/SEARCH.md)")


def show(experiment: Experiment) -> None:
    """Print the counts of an experiment and its verdict."""
    counts, (first, second) = experiment.counts, sides(experiment)
    print_table(
        [experiment.name, "searches won", "clicks"],
        [
            (first, counts.first, counts.clicks[0]),
            (second, counts.second, counts.clicks[1]),
            ("neither", counts.ties, ""),
        ],
    )
    failed = (
        f", {counts.failed:,} more {'was' if counts.failed == 1 else 'were'} answered by {first} alone"
        if counts.failed
        else ""
    )
    say(f"{amount(counts.searches, 'search', 'searches')} interleaved since {when(counts.since)}{failed}")
    say(sentence(experiment))


def sentence(experiment: Experiment) -> str:
    """The verdict on an experiment, as a sentence for an operator."""
    first, second = sides(experiment)
    if experiment.share is None:
        return "no search was won yet: send clicks with POST /clicks, with the search id from the answer"
    between = f"between {experiment.low:.0%} and {experiment.high:.0%}"
    share = f"{second} wins {experiment.share:.0%} of the decided searches ({between})"
    confidence = f"{experiment.confidence:.1%} confidence"
    if experiment.better is None:
        return f"not decided yet: {share}, at {confidence}; 95% is needed"
    winner = second if experiment.better == "second" else first
    return f"{winner} is better: {share}, at {confidence}"


def sides(experiment: Experiment) -> tuple[str, str]:
    """The names of the two rankings."""
    second = experiment.against
    if experiment.against_version is not None:
        second = f"{second} version {experiment.against_version:,}"
    return experiment.model, second


def added(experiment: Experiment, other: Experiment) -> Experiment:
    """The counts of two nodes added up, with a new verdict."""
    import msgspec

    from omdml.retrieval.interleaving import verdict

    counts = together(experiment.counts, other.counts)
    return msgspec.structs.replace(experiment, counts=counts, **verdict(counts.first, counts.second).named())


def together(counts: Counts, other: Counts) -> Counts:
    """The sums of the counts of two nodes; ``since`` is the earlier of the two."""
    from omdml.client.answers import Counts

    clicks = counts.clicks[0] + other.clicks[0], counts.clicks[1] + other.clicks[1]
    sums = {
        name: getattr(counts, name) + getattr(other, name) for name in ("searches", "failed", "first", "second", "ties")
    }
    return Counts(since=min(counts.since, other.since), clicks=clicks, **sums)
