"""A log in a folder of segments, a log that is one file, and readers of both."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from omdml.streams.files.source import FileSource
from tests.support.files.files import Follow
from tests.support.servers.listeners import Recorder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "feedback"
    folder.mkdir()
    return folder


@pytest.fixture
def follow(folder: Path) -> Iterator[Follow]:
    sources: list[FileSource] = []

    def subscribed(path: Path = folder, start: int | None = None, group: str = "workers") -> FileSource:
        sources.append(FileSource(path, group))
        sources[-1].subscribe(Recorder(start))
        return sources[-1]

    yield subscribed
    for source in sources:
        source.close()


@pytest.fixture
def clicks(tmp_path: Path) -> Path:
    return tmp_path / "clicks.jsonl"


@pytest.fixture
def follow_clicks(clicks: Path) -> Iterator[Follow]:
    sources: list[FileSource] = []

    def subscribed() -> FileSource:
        sources.append(FileSource(clicks))
        sources[-1].subscribe(Recorder())
        return sources[-1]

    yield subscribed
    for source in sources:
        source.close()
