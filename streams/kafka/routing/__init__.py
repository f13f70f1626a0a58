"""Routing from a topic of any partitioning into the keyed one."""
