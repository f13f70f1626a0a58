"""Simulated people who search and click: in the demo on this machine, or as load for any node."""

from omdml.workers.demo.run import run_demo
from omdml.workers.demo.simulation import run_simulation

__all__ = ["run_demo", "run_simulation"]
