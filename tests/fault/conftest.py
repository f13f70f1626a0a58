"""Real servers for the tests of this folder."""

from tests.support.services import *  # noqa: F403
