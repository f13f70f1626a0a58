"""``omdml replay``, ``forget`` and ``learn-on``: learn a log again while no worker runs, or beside them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from omdml.workers.commands.options import LEARNER, accept_gap, from_file, wide_console
from omdml.workers.commands.store.models import confirm

if TYPE_CHECKING:
    from omdml.workers.configuration import config
    from omdml.workers.operate.left_out import LeftOut

TIME = click.DateTime(["%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%d"])
# What --help shows for a time. A space can stand in the place of the T.
FORM = "YYYY-MM-DD[THH:MM:SS]"


@click.command()
@click.option("--catalogue", help="Folder (or redis://...#NAME) of a catalogue to add to those of [catalogues].")
@click.option("--model", required=True, help="Model whose events to learn; a pattern may cover its name.")
@click.option(
    "--learner", "learners", multiple=True, type=LEARNER, help="Learner instead of the configured one. May be repeated."
)
@click.option("--fit", "fitting", is_flag=True, help="Fit diagonal, omdml, qwise or signed on the log's first part.")
@click.option(
    "--fit-on",
    default=5000,
    show_default=True,
    type=click.IntRange(1),
    help="Number of comparisons to fit on, at most half the log.",
)
@click.option("--save", type=click.Path(dir_okay=False), help="File for the learner's state.")
@click.option("--html", type=click.Path(dir_okay=False), help="File for a page with curves. The page needs no network.")
@click.option("--publish", is_flag=True, help="Store the result as the beginning of the model; workers go on from it.")
@click.option("--replace", is_flag=True, help="With --publish: replace what the store has of the model.")
@click.option(
    "--vector",
    help="For a model in parts: offset at which each partition ends, as omdml history shows it (PARTITION:OFFSET,...).",
)
@accept_gap
@from_file
def replay(load: Callable[..., config.Configuration], catalogue: str | None, model: str, **options: Any) -> None:
    """Learn the log again from its start, and count the mistakes. Workers may run meanwhile."""
    overrides: dict[str, Any] = {"catalogues": {"default": {"path": catalogue}}} if catalogue else {}
    if catalogue:
        overrides["models"] = {model: {"catalogue": "default"}}
    configuration = load(overrides)

    from omdml.workers.commands import replay_output
    from omdml.workers.configuration.warm_up import announce_compiling

    announce_compiling()
    replay_output.run(configuration, model, replay_output.ReplayOptions(**options), wide_console())


def again(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function into a command that has a model learn its log again without some events.

    The function returns the question to ask, and what to leave out.
    """

    @click.argument("model")
    @click.option("--yes", is_flag=True, help="Do not ask.")
    @accept_gap
    @from_file
    @functools.wraps(command)
    def with_log(
        load: Callable[..., config.Configuration], model: str, yes: bool, accept_gap: bool, **asked: Any
    ) -> None:
        configuration = load({})

        from omdml.workers.commands import replay_output
        from omdml.workers.configuration.warm_up import announce_compiling
        from omdml.workers.operate import models
        from omdml.workers.wiring.feedback_log import require_stopped
        from omdml.workers.wiring.stores import open_stores

        question, left_out = command(model=model, **asked)
        store = open_stores(configuration)
        require_stopped(configuration.log, store)
        models.require(store, model)
        confirm(question, yes)
        announce_compiling()
        options = replay_output.ReplayOptions(publish=True, replace=True, accept_gap=accept_gap, left_out=left_out)
        replay_output.run(configuration, model, options, wide_console())

    return with_log


@click.command()
@click.option("--user", "users", required=True, multiple=True, help="User whose events to leave out. May be repeated.")
@again
def forget(model: str, users: tuple[str, ...]) -> tuple[str, LeftOut]:
    """Learn MODEL's log again without the events of a user. This replaces what it learned before.

    Stop the workers first. The model's checkpoints, snapshots and history are deleted. The log and backups keep the
    events (deploy/RUNBOOK.md). Also name the users who were forgotten earlier: otherwise their events are learned
    again.
    """
    from omdml.workers.operate.left_out import LeftOut

    return f"Learn {model} again without {', '.join(users)}?", LeftOut(frozenset(users))


@click.command("learn-on")
@click.option("--version", type=click.IntRange(min=0), help="Leave out what came after this version.")
@click.option("--without-user", "users", multiple=True, help="Leave out this user's events. May be repeated.")
@click.option("--since", type=TIME, metavar=FORM, help="Leave out events from this time on (UTC).")
@click.option(
    "--until",
    type=TIME,
    metavar=FORM,
    help="Leave out events before this time (UTC); with --since, only those between the two.",
)
@again
def learn_on(
    model: str, version: int | None, users: tuple[str, ...], since: datetime | None, until: datetime | None
) -> tuple[str, LeftOut]:
    """Learn MODEL's log again without some of its events. With --version, go back to an earlier version for good.

    Stop the workers first. Events that come from now on are learned as usual. The model's checkpoints, snapshots and
    history are deleted: make a backup first (deploy/RUNBOOK.md). Also name the users who were forgotten earlier
    (--without-user): otherwise their events are learned again.
    """
    from omdml.workers.operate.left_out import NOTHING, LeftOut

    begin, end = (None if time is None else time.replace(tzinfo=UTC).timestamp() for time in (since, until))
    left_out = LeftOut(frozenset(users), begin, end, version)
    if left_out == NOTHING:
        raise click.UsageError("say what to leave out: --version, --without-user, --since or --until")
    if begin is not None and end is not None and begin >= end:
        raise click.UsageError(f"--since {since} is not before --until {until}")
    return f"Learn {model} again without these events?", left_out
