"""Which files pytest looks for tests in, and whose assertions show their values."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

# pytest does this by itself only for test modules. An assertion that fails in a helper shows its values as well.
pytest.register_assert_rewrite("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests only in files that show a prompt: looking imports a module and takes longer than reading it."""
    collectors = yield
    return [collector for collector in collectors if type(collector) is pytest.Module or ">>>" in file_path.read_text()]
