"""Real servers for the tests of this folder."""

from tests.fault.watched import valkey, watched  # noqa: F401
from tests.support.services import *  # noqa: F403
