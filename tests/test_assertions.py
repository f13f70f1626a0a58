"""An assertion that fails says what it compared, in helpers as in tests."""

from __future__ import annotations

import httpx
import pytest

from tests.support.shops import refused


def test_an_assertion_of_a_helper_shows_its_values():
    with pytest.raises(AssertionError, match=r"404.*== .*200"):
        refused(httpx.Response(404, json={"error": "unknown_model"}), 200, "unknown_model")
