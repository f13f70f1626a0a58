"""The folder in which commands on stores run."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFIGURATION = """
[log]
path = "feedback"
letters = "letters"
[store]
url = "dir:state"
[catalogues.items]
path = "items"
[models.shop]
learner = "lomdml"
rank = 3
[guard]
tolerance = 2.0
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of commands: it holds a configuration."""
    (tmp_path / "omdml.toml").write_text(CONFIGURATION)
    monkeypatch.chdir(tmp_path)
    return tmp_path
