"""What commands have in common: their configuration, and how they print."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from omdml import LEARNER_CLASSES
from omdml.errors import CatalogueError, ConfigurationError, NoModel, OmdmlError
from omdml.workers.configuration.process import visible

# Even ``omdml --help`` imports this file, so the functions themselves import what only a running command needs.
if TYPE_CHECKING:
    from rich.console import Console

    from omdml.workers.configuration import config

DEFAULT_FILE = "omdml.toml"
LEARNER = click.Choice(list(LEARNER_CLASSES))
NEAR = "[default: http:// and node.bind of the configuration]"
accept_gap = click.option(
    "--accept-gap", is_flag=True, help="Go on even if the log has lost events, without these events."
)


def configured(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command its ``configuration``, from --config, the environment, --catalogue and --model."""

    @click.option("--catalogue", help="Folder (or redis://...#NAME) of a catalogue to add to those of [catalogues].")
    @click.option("--model", help="Name of a model to add to those of [models].")
    @from_file
    @functools.wraps(command)
    def with_configuration(load: Callable[..., Any], catalogue: str | None, model: str | None, **options: Any) -> Any:
        overrides: dict[str, Any] = {}
        if catalogue:
            overrides["catalogues"] = {"default": {"path": catalogue}}
        if model:
            overrides["models"] = {model: {"catalogue": "default"} if catalogue else {}}
        return command(configuration=load(overrides), **options)

    return with_configuration


def from_file(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``load``, which returns the configuration of --config and the environment, with overrides."""

    @click.option(
        "-c",
        "--config",
        "path",
        help=f"Configuration in TOML. [default: {DEFAULT_FILE} in this folder, if it exists]",
        metavar="FILE",
    )
    @functools.wraps(command)
    def with_file(path: str | None, **options: Any) -> Any:
        if path is None and os.path.lexists(DEFAULT_FILE):
            path = DEFAULT_FILE

        warned = False

        def load(overrides: dict[str, Any], thorough: bool = False, optional: bool = False) -> config.Configuration:
            nonlocal warned
            from omdml.workers.configuration import loading, process
            from omdml.workers.configuration.checks.mistakes import Mistakes

            configuration = loading.load(path, os.environ, overrides, thorough)
            process.configure_log(configuration.logging.format, configuration.logging.level)
            nothing_configured = path is None and not overrides and not loading.of_environment(os.environ, Mistakes())
            # Commands that ask a node can do without a configuration. The others would show an empty store or log as if
            # it were the right one.
            if nothing_configured and not optional:
                raise ConfigurationError(without_models(None))
            if not configuration.models and (path or nothing_configured):
                say(f"omdml: {without_models(path)}", err=True)
                warned = True
            return configuration

        try:
            return command(load=load, **options)
        except NoModel as error:
            if warned:
                sys.exit(exit_code(error))
            raise

    return with_file


def asking_node(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``node``, the URL of --node, or of the node that the configuration has on this machine."""

    @click.option("--node", metavar="URL", help=f"URL of the node. {NEAR}")
    @from_file
    @functools.wraps(command)
    def with_node(load: Callable[..., Any], node: str | None, **options: Any) -> Any:
        return command(node=node or near_url(load), **options)

    return with_node


def near_url(load: Callable[..., Any]) -> str:
    """The URL of the node that the configuration has on this machine; ``load`` is that of :func:`from_file`."""
    from omdml.workers.configuration.process import near_address

    host, port = near_address(load({}, optional=True).node.bind)
    return f"http://{host}:{port}"


def without_models(path: str | None) -> str:
    """Say why no model is configured: which file was read, or that there is none."""
    if path is None:
        return (
            f"there is no {DEFAULT_FILE} in {os.getcwd()}, so no model is configured: change to the folder with your "
            f"{DEFAULT_FILE}, or name the file with --config FILE"
        )
    return f"{os.path.abspath(path)} was read, and has no section [models.NAME]: add one"


def stored(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command its ``configuration``, from --config and the environment."""

    @from_file
    @functools.wraps(command)
    def with_configuration(load: Callable[..., Any], **options: Any) -> Any:
        return command(configuration=load({}), **options)

    return with_configuration


def exit_code(error: OmdmlError) -> int:
    """The exit code for an error: 2 for the configuration, 3 if an operator must decide, 1 for anything else."""
    if isinstance(error, ConfigurationError | CatalogueError):
        return 2
    return 3 if error.needs_operator else 1


def wide_console() -> Console:
    """The console for tables: as wide as the terminal, or 160 characters if the output is no terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 160)


def say(text: str, err: bool = False) -> None:
    """Print a line without control characters: it may hold names that the senders of events chose."""
    click.echo(visible(text), err=err)


def cell(content: object) -> str:
    """The content of a table's cell as text, without control characters and without markup."""
    from rich.markup import escape

    return escape(visible(str(content)))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table; see :func:`wide_console` for its width.

    The first column names the row, and stays on one line as long as there is room, so that it can be copied.
    """
    from rich.table import Table

    table = Table(title=None if title is None else cell(title), title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(cell(column), overflow="fold", no_wrap=number == 0)
    for row in rows:
        table.add_row(*map(cell, row))
    wide_console().print(table)
