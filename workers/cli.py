"""The command line: the group that all commands hang from, and how errors end a process."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO, cast

import click

from omdml.errors import OmdmlError
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
from omdml.workers.commands.history import archive, bootstrap
from omdml.workers.commands.nodes import experiments, searches
from omdml.workers.commands.options import exit_code, say
from omdml.workers.commands.vectors import export, sync

# The exit code after Ctrl-C, as shells tell it of processes that SIGINT ended.
INTERRUPTED = 130


class OutputError(OmdmlError):
    """Standard output does not take what a command prints."""


class Output:
    """Standard output, whose failures are told in a sentence.

    A reader that has gone (``omdml ... | head``) is no failure: that is left to click.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # None stands for one that is closed. A file that is open for reading refuses as well.
        self._stream = stream or open(os.devnull)  # noqa: SIM115 # it is open as long as the process

    def write(self, text: str) -> int:
        with self._telling():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._telling():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            # Python would flush it at the end, and end with 120 as that fails.
            sys.stdout = None
            why = error.strerror or "it is closed"
            raise OutputError(
                f"standard output cannot be written ({why}): send it to a file with room, or a terminal"
            ) from error


class Omdml(click.Group):
    """Errors of ours end the process with one sentence, not with a traceback."""

    def main(self, *args: Any, **options: Any) -> Any:
        """Run a command. If its output cannot be written, the process ends with exit code 1 and a sentence."""
        before, sys.stdout = sys.stdout, cast(TextIO, Output(sys.stdout))
        try:
            return super().main(*args, **options)
        except OutputError as error:
            end(error, 1)
        finally:
            if sys.stdout is not None:
                sys.stdout = before

    def invoke(self, context: click.Context) -> Any:
        """Run the command, and turn an error of omdml into a message and an exit code, Ctrl-C into a code alone."""
        try:
            return super().invoke(context)
        except OmdmlError as error:
            end(error, exit_code(error))
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Find the command; a mistyped one is answered with the nearest there is."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from omdml.workers.configuration.suggestion import suggestion

            raise click.UsageError(f"no command {args[0]!r}{suggestion(args[0], self.commands)}", context)
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


PROCESSES = (processes.worker, processes.node, processes.route, sync.sync, demo.demo, demo.simulate)
OPERATORS = (
    archive.archive,
    bootstrap.bootstrap,
    backup.backup,
    backup.restore,
    catalogue.catalogue,
    processes.deploy,
    experiments.compare_live,
    doctor.config,
    doctor.doctor,
    doctor.status,
    export.export,
    feed.feed,
    letters.letters,
    models.models,
    replay.forget,
    replay.learn_on,
    replay.replay,
    searches.compare,
    searches.search,
    topics.topics,
)

for command in (*PROCESSES, *OPERATORS, *snapshots.COMMANDS):
    main.add_command(command)

if __name__ == "__main__":
    main()
