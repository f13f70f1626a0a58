"""The command line."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from typing import Any, NoReturn

import click

from omdml.errors import CatalogueError, ConfigurationError, OmdmlError
from omdml.workers.commands import (
    backup,
    catalogue,
    demo,
    doctor,
    feed,
    letters,
    models,
    processes,
    replay,
    snapshots,
    topics,
)
from omdml.workers.commands.options import say


class Omdml(click.Group):
    """Errors of ours end the process with one sentence, not with a traceback.

    The exit code is 2 for the configuration, 3 if an operator must decide, 1 for anything else.
    """

    def invoke(self, context: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(context)
        except (ConfigurationError, CatalogueError) as error:
            end(error, 2)
        except OmdmlError as error:
            end(error, 3 if error.needs_operator else 1)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Find the command; a mistyped one is answered with the nearest there is."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from omdml.workers.configuration import config

            raise click.UsageError(f"no command {args[0]!r}{config.suggestion(args[0], self.commands)}", context)
        return super().resolve_command(context, args)


def end(error: OmdmlError, code: int) -> NoReturn:
    """End the process with a sentence; a supervisor hears the code even if nobody can be told the sentence."""
    with suppress(OSError):
        say(f"omdml: {error}", err=True)
    sys.exit(code)


@click.group(cls=Omdml, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="omdml")
def main() -> None:
    """Learns what similar means from what people click, while they click."""
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        # Without a buffer. Python would flush what a full disk left in it as the process ends, and end with 120.
        raw = io.FileIO(sys.stderr.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, sys.stderr.encoding, sys.stderr.errors, write_through=True)


PROCESSES = (processes.worker, processes.node, processes.route, demo.demo, demo.simulate)
OPERATORS = (
    backup.backup,
    backup.restore,
    catalogue.catalogue,
    processes.deploy,
    doctor.config,
    doctor.doctor,
    feed.feed,
    letters.letters,
    models.models,
    replay.replay,
    topics.topics,
)

for command in (*PROCESSES, *OPERATORS, *snapshots.COMMANDS):
    main.add_command(command)

if __name__ == "__main__":
    main()
