"""Real servers for the tests of this folder."""

from tests.support.servers.kafka_reader import open_reader  # noqa: F401
from tests.support.services import *  # noqa: F403
