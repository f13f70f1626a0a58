"""``omdml replay``: learn a log again, offline."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from omdml.workers.commands.options import LEARNER, accept_gap, from_file, wide_console

if TYPE_CHECKING:
    from omdml.workers.configuration import config


@click.command()
@click.option("--catalogue", help="Folder of the one catalogue (or redis://...#NAME), instead of [catalogues].")
@click.option("--model", required=True, help="Whose events to learn; a name that a pattern covers will do.")
@click.option("--learner", "learners", multiple=True, type=LEARNER, help="Instead; repeatable.")
@click.option("--fit", "fitting", is_flag=True, help="Fit diagonal, omdml, qwise or signed on the log's first part.")
@click.option("--fit-on", default=5000, show_default=True, type=click.IntRange(1), help="Comparisons; or half the log.")
@click.option("--save", type=click.Path(dir_okay=False), help="Write the learner's state here.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a page with curves here; it needs no network.")
@click.option("--publish", is_flag=True, help="Begin the model in the store: workers go on from here.")
@click.option("--replace", is_flag=True, help="With --publish: delete what the store has of the model.")
@accept_gap
@from_file
def replay(load: Callable[..., config.Configuration], catalogue: str | None, model: str, **options: Any) -> None:
    """Learn the feedback log again from its beginning, offline, and show how mistakes went; workers notice nothing."""
    from omdml.workers.commands import replay_output
    from omdml.workers.configuration.warm_up import announce_compiling

    announce_compiling()
    overrides: dict[str, Any] = {"catalogues": {"default": {"path": catalogue}}} if catalogue else {}
    if catalogue:
        overrides["models"] = {model: {"catalogue": "default"}}
    replay_output.run(load(overrides), model, replay_output.Options(**options), wide_console())
