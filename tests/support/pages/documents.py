"""Reads what documents show: fenced blocks, commands, and console sessions with their output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
# A command may stand behind another one that runs it.
COMMAND = re.compile(r"(?:^|[ /])omdml ([a-z].*)")
HEREDOC = re.compile(r"<<\s*(\w+)")
# The words of a command end before a comment, or before another command.
WORDS_END = re.compile(r"\s+#\s.*|[;|&]+")
# The first word of a line that is a command, in blocks that show no prompt.
PROGRAMS = ("curl", "omdml")
# What the runbook has a command for, in each kind of installation.
OPERATIONS = (
    "call a command", "read a log", "stop the workers", "start them", "restart one worker", "see how it ended",
    "ask a worker",
)  # fmt: skip


class Block(NamedTuple):
    """A fenced block: its language, empty if it has none, and its text."""

    language: str
    text: str


class Step(NamedTuple):
    """A command of a console session, and what the document says that it prints."""

    command: str
    output: list[str]


def read(name: str) -> str:
    """The text of a document of this repository."""
    return (ROOT / name).read_text()


def blocks(text: str, *languages: str) -> list[Block]:
    """The fenced blocks of these languages."""
    every = (Block(*match.groups()) for match in FENCE.finditer(text))
    return [block for block in every if block.language in languages]


def block_that_begins(text: str, beginning: str) -> str:
    """The text of the only fenced block that begins like this."""
    (block,) = [match[2] for match in FENCE.finditer(text) if match[2].startswith(beginning)]
    return block


def operators_commands(heading: str) -> dict[str, list[str]]:
    """The commands that the runbook gives operators under this heading, for one kind of installation."""
    section = re.split(r"^#", read("deploy/RUNBOOK.md").partition(f"\n#### {heading}\n")[2], flags=re.MULTILINE)[0]
    listed = (item.split("\n\n")[0].partition(":") for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:])
    return {name: INLINE.findall(text) for name, _, text in listed}


def steps(session: str) -> list[Step]:
    """The commands of a console session; quotes and here-documents may go over several lines."""
    listed: list[Step] = []
    lines = iter(session.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            listed[-1].output.append(line)
            continue
        command = line.removeprefix("$ ")
        while command.count('"') % 2:
            command += "\n" + next(lines)
        if end := HEREDOC.search(command):
            while not command.endswith(f"\n{end[1]}"):
                command += "\n" + next(lines)
        listed.append(Step(command, []))
    return listed


def plain_steps(text: str) -> list[Step]:
    """The commands of a block without prompts; a line that ends in a backslash goes on in the next one."""
    listed: list[Step] = []
    for line in text.replace("\\\n", "").splitlines():
        if line.startswith(PROGRAMS):
            listed.append(Step(line, []))
        else:
            listed[-1].output.append(line)
    return listed


def typed(text: str) -> list[list[str]]:
    """The words after ``omdml`` of every command in blocks, which people type as it stands there; each once."""
    lines = [step.command for block in blocks(text, "console") for step in steps(block.text)]
    lines += [line for block in blocks(text, "") for line in block.text.replace("\\\n", " ").splitlines()]
    return _words(lines)


def mentioned(text: str) -> list[list[str]]:
    """The words after ``omdml`` of every command in sentences and tables, which may be named without its arguments."""
    return _words(code.replace("\n", " ") for code in INLINE.findall(FENCE.sub("", text)))


def _words(lines: Iterable[str]) -> list[list[str]]:
    parts = [WORDS_END.split(line.split("\n")[0]) for line in lines]
    commands = [match[1] for line in parts for match in map(COMMAND.search, line) if match]
    return [shlex.split(words) for words in dict.fromkeys(commands)]
