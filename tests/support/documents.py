"""What documents show: their fenced blocks, their commands, and console sessions with what these print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(omdml [a-z][^`]*)`")
HEREDOC = re.compile(r"<<\s*(\w+)")
WORDS_END = re.compile(r"\s+#\s|[;|&]")  # a comment, or another command


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
    return [
        found for found in (Block(*match.groups()) for match in FENCE.finditer(text)) if found.language in languages
    ]


def operators_commands(column: int) -> dict[str, list[str]]:
    """What the runbook's table says that operators call under systemd (0), on Kubernetes (1), with Compose (2)."""
    rows = [line.strip("|").split("|") for line in read("deploy/RUNBOOK.md").splitlines() if line.startswith("| ")]
    begin = next(number for number, row in enumerate(rows) if "systemd" in row[1])
    return {row[0].strip(): re.findall(r"`([^`]+)`", row[1 + column]) for row in rows[begin + 1 : begin + 5]}


def steps(session: str) -> list[Step]:
    """The commands of a console session; quotes and here-documents may go over several lines."""
    found: list[Step] = []
    lines = iter(session.splitlines())
    for line in lines:
        if not line.startswith("$ "):
            found[-1].output.append(line)
            continue
        command = line.removeprefix("$ ")
        while command.count('"') % 2:
            command += "\n" + next(lines)
        if end := HEREDOC.search(command):
            while not command.endswith(f"\n{end[1]}"):
                command += "\n" + next(lines)
        found.append(Step(command, []))
    return found


def commands(text: str) -> list[list[str]]:
    """The words after ``omdml`` of every command in blocks and sentences, each once."""
    lines = [step.command for block in blocks(text, "console") for step in steps(block.text)]
    lines += [line for block in blocks(text, "") for line in block.text.splitlines() if line.startswith("omdml ")]
    lines += INLINE.findall(text)
    found = []
    for line in lines:
        for begin in re.finditer(r"\bomdml (?=[a-z])", line):
            words = WORDS_END.split(line[begin.end() :].split("\n")[0], maxsplit=1)[0]
            found.append(shlex.split(words))
    return [list(words) for words in dict.fromkeys(map(tuple, found))]
