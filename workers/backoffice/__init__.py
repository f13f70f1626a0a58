"""What operators ask a node for beside searches: health and dead letters, answered by a process of its own."""
