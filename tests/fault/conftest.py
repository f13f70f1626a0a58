"""Real servers for the tests of this folder."""

from tests.fault.alerts.watched import valkey, watched  # noqa: F401
from tests.fault.chaos.load import Load
from tests.fault.chaos.service import Service
from tests.fault.chaos.watch import Watch
from tests.support.forks import ForkedProcess
from tests.support.services import *  # noqa: F403

# The long run (`make chaos`) measures how long a restart takes, so it starts real commands. Here that only costs time.
Service.process = ForkedProcess
# It also measures how long learning and serving stand still, to a hundredth of a second, while every model publishes
# fifty times a second. The tests here ask what became of each event, and whether versions go back: fewer events, in
# fewer bursts, with as many looks as publications, leave the processors to what else runs.
Service.rate, Load.tick_s, Watch.look_every_s = 100, 0.1, 0.1
