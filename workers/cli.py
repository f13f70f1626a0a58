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
from omdml.workers.commands import catalogue, demo, doctor, feed, letters, processes, replay, topics
from omdml.workers.commands.history import archive, bootstrap
from omdml.workers.commands.nodes import experiments, searches
from omdml.workers.commands.options import exit_code, say
from omdml.workers.commands.store import backup, models, snapshots
from omdml.workers.commands.vectors import export, sync

# The exit code after Ctrl-C: the same that shells give a process that SIGINT has ended.
INTERRUPTED = 130


class OutputError(OmdmlError):
    """Standard output does not take what a command prints."""


class Output:
    """Standard output. If it cannot be written, an OutputError says so in a sentence.

    If the reader has gone (``omdml ... | head``), nothing is printed about it: click ends the command with exit code 1.
    """

    def __init__(self, stream: TextIO | None) -> None:
        # It is None if standard output is closed. The stand-in is open for reading only, so writing to it fails, too.
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
            # Otherwise Python would flush it at the end, fail, and exit with code 120.
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
        """Run the command, and turn an error of omdml, or Ctrl-C, into a line and an exit code."""
        try:
            return super().invoke(context)
        except OmdmlError as error:
            end(error, exit_code(error))
        except KeyboardInterrupt:
            with suppress(OSError):
                say("omdml: stopped by Ctrl-C", err=True)
            sys.exit(INTERRUPTED)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what they are for."""
        widest = max(map(len, self.commands))
        for title, section in SECTIONS.items():
            texts = [command.get_short_help_str(formatter.width - 6 - widest) for command in section]
            with formatter.section(title):
                formatter.write_dl(
                    [(str(command.name).ljust(widest), text) for command, text in zip(section, texts, strict=True)]
                )

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        """Find the command; the error about one that does not exist says which one is probably meant."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from omdml.workers.commands.wrong_names import what_is_meant

            raise click.UsageError(f"no command {args[0]!r}{what_is_meant(args[0], self.commands)}", context)
        return super().resolve_command(context, args)


def end(error: OmdmlError, code: int) -> NoReturn:
    """End the process with a sentence, and the notes of the error below it.

    The exit code is right even if the sentence cannot be printed.
    """
    with suppress(OSError):
        say(f"omdml: {error}", err=True)
        for note in getattr(error, "__notes__", ()):
            say(note, err=True)
    sys.exit(code)


@click.group(cls=Omdml, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="omdml")
def main() -> None:
    """Learn what similar means from what people click, while they click.

    Try it with omdml demo. omdml doctor says what is wrong with an installation."""
    if sys.stderr is sys.__stderr__ and sys.stderr is not None:
        # Standard error gets no buffer. If the disk is full, Python would fail to flush it at the end, and exit with
        # code 120.
        raw = io.FileIO(sys.stderr.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, sys.stderr.encoding, sys.stderr.errors, write_through=True)


# The parts of what `omdml --help` lists.
SECTIONS = {
    "Try it": (demo.demo, demo.simulate),
    "Run it": (processes.worker, processes.node, processes.route, sync.sync, processes.deploy),
    "See how it is": (doctor.status, doctor.doctor, doctor.config, topics.topics),
    "Search": (searches.search, searches.compare, experiments.compare_live),
    "Items": (catalogue.catalogue, export.export),
    "Events": (feed.feed, letters.letters, archive.archive),
    "Versions of a model": snapshots.COMMANDS,
    "Models": (models.models, replay.replay, replay.learn_on, replay.forget, bootstrap.bootstrap),
    "The store": (backup.backup, backup.restore),
}

for section in SECTIONS.values():
    for command in section:
        main.add_command(command)

if __name__ == "__main__":
    main()
