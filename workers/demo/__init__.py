"""People who search and click: the demo on this machine, and load for any node."""

from omdml.workers.demo.run import run_demo
from omdml.workers.demo.simulation import run_simulation

__all__ = ["run_demo", "run_simulation"]
