"""What every test may rely on."""

import pytest
import structlog


@pytest.fixture(autouse=True)
def _log_as_in_a_new_process():
    """A command run within a test says where the log goes: only until the test ends."""
    yield
    structlog.reset_defaults()
