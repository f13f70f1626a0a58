"""Processes that are killed, at any moment or right after a step of a protocol."""
