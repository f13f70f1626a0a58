"""From a topic of any partitioning into the keyed one."""
