"""What tests of rules and boards need."""

from __future__ import annotations

import os

import pytest

from deploy.local import ServiceError
from deploy.local.fetching import fetch


@pytest.fixture(scope="module")
def promtool():
    try:
        return fetch.promtool().path
    except ServiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"promtool cannot be had: {error}")


@pytest.fixture(scope="module")
def systemd():
    try:
        return fetch.systemd()
    except ServiceError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"systemd cannot be had: {error}")
