"""The service that the doctor looks at."""

import pytest

from tests.support.installations import Installation


@pytest.fixture
def shop(tmp_path):
    return Installation(tmp_path)
