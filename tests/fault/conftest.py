"""Real servers for the tests of this folder."""

from tests.fault.chaos.service import Service
from tests.fault.watched import valkey, watched  # noqa: F401
from tests.support.forks import ForkedProcess
from tests.support.services import *  # noqa: F403

# The long run (`make chaos`) measures how long a restart takes, so it starts real commands. Here that only costs time.
Service.process = ForkedProcess
