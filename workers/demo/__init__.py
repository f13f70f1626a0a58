"""Simulated people who search and click: in the demo on this machine, or as load for any node."""
