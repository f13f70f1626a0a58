"""Suggests the commands that were probably meant by a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import click

# Words that other programs use, and the commands that do the same here.
MEANT = {
    "index": ("catalogue build",),
    "init": ("catalogue build",),
    "learn": ("worker", "learn-on"),
    "log": ("history",),
    "logs": ("history",),
    "run": ("worker", "node"),
    "serve": ("node",),
    "server": ("node",),
    "start": ("worker", "node"),
    "train": ("worker",),
    "up": ("worker", "node"),
}
# Other words count only if they look like a mistyped command, with this ratio of difflib: 'stop' is not 'topics'.
ALIKE = 0.75


def what_is_meant(name: str, commands: Mapping[str, click.Command]) -> str:
    """The end of a message about an unknown command: those that are probably meant, or how to list all."""
    meant = [*MEANT.get(name, ()), *_below(name, commands)]
    if not meant:
        meant = difflib.get_close_matches(name, list(commands), n=1, cutoff=ALIKE)
    if not meant:
        return ": omdml --help lists all commands"
    return f": did you mean {' or '.join(repr(f'omdml {command}') for command in dict.fromkeys(meant))}?"


def _below(name: str, commands: Mapping[str, click.Command]) -> list[str]:
    """The commands of groups that have this name, such as ``catalogue build``."""
    groups = [(title, group) for title, group in commands.items() if isinstance(group, click.Group)]
    return [f"{title} {name}" for title, group in groups if name in group.commands]
