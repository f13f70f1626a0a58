"""``omdml replay``, ``forget`` and ``learn-on``: learn a log again, offline."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from omdml.workers.commands.models import confirm
from omdml.workers.commands.options import LEARNER, accept_gap, from_file, wide_console

if TYPE_CHECKING:
    from omdml.workers.configuration import config
    from omdml.workers.operate.left_out import LeftOut

TIME = click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"])


@click.command()
@click.option("--catalogue", help="Folder of the one catalogue (or redis://...#NAME), instead of [catalogues].")
@click.option("--model", required=True, help="Whose events to learn; a name that a pattern covers will do.")
@click.option("--learner", "learners", multiple=True, type=LEARNER, help="Instead; repeatable.")
@click.option("--fit", "fitting", is_flag=True, help="Fit diagonal, omdml, qwise or signed on the log's first part.")
@click.option("--fit-on", default=5000, show_default=True, type=click.IntRange(1), help="Comparisons; or half the log.")
@click.option("--save", type=click.Path(dir_okay=False), help="Write the learner's state here.")
@click.option("--html", type=click.Path(dir_okay=False), help="Write a page with curves here; it needs no network.")
@click.option("--publish", is_flag=True, help="Begin the model in the store: workers go on from here.")
@click.option("--replace", is_flag=True, help="With --publish: in the place of what the store has.")
@click.option("--vector", help="Of a model in parts: where each part ends, PARTITION:OFFSET,... as its history shows.")
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


def again(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command what it needs to have a model learn its log again, without some of the events."""

    @click.argument("model")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @accept_gap
    @from_file
    @functools.wraps(command)
    def with_log(
        load: Callable[..., config.Configuration], model: str, yes: bool, accept_gap: bool, **asked: Any
    ) -> None:
        from omdml.workers.commands import replay_output
        from omdml.workers.configuration.warm_up import announce_compiling
        from omdml.workers.operate import models
        from omdml.workers.wiring.feedback_log import require_stopped
        from omdml.workers.wiring.stores import open_stores

        question, left_out = command(model=model, **asked)
        configuration = load({})
        require_stopped(configuration.log)
        models.require(open_stores(configuration), model)
        confirm(question, yes)
        announce_compiling()
        options = replay_output.Options(publish=True, replace=True, accept_gap=accept_gap, left_out=left_out)
        replay_output.run(configuration, model, options, wide_console())

    return with_log


@click.command()
@click.option("--user", "users", required=True, multiple=True, help="Whose events; may be repeated.")
@again
def forget(model: str, users: tuple[str, ...]) -> tuple[str, LeftOut]:
    """Have MODEL learn its log again without the events of a user, in the place of what it learned.

    Stop the workers first. Checkpoints, snapshots and history of before are deleted. What the log and backups hold
    stays in them (deploy/RUNBOOK.md). Name the users that were forgotten before too.
    """
    from omdml.workers.operate.left_out import LeftOut

    return f"Learn {model} again without {', '.join(users)}?", LeftOut(frozenset(users))


@click.command("learn-on")
@click.option("--version", type=click.IntRange(min=0), help="Leave out what came after this version.")
@click.option("--without-user", "users", multiple=True, help="Leave out this user's events; may be repeated.")
@click.option("--since", type=TIME, help="Leave out events from this time on (UTC).")
@click.option("--until", type=TIME, help="Leave out events up to this time (UTC); alone: from the first one on.")
@again
def learn_on(
    model: str, version: int | None, users: tuple[str, ...], since: datetime | None, until: datetime | None
) -> tuple[str, LeftOut]:
    """Have MODEL go on from an earlier version, or learn its log again without some of the events.

    Stop the workers first. Events that come from now on are learned as ever. Checkpoints, snapshots and history of
    before are deleted: omdml backup keeps them.
    """
    from omdml.workers.operate.left_out import NOTHING, LeftOut

    begin, end = (None if time is None else time.replace(tzinfo=UTC).timestamp() for time in (since, until))
    left_out = LeftOut(frozenset(users), begin, end, version)
    if left_out == NOTHING:
        raise click.UsageError("say what to leave out: --version, --without-user, --since or --until")
    if begin is not None and end is not None and begin >= end:
        raise click.UsageError(f"--since {since} is not before --until {until}")
    return f"Learn {model} again without these events?", left_out
