"""Behaviours in sentences; what must be running decides the folder."""
