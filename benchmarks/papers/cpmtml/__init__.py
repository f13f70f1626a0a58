"""Tables of CP-mtML: two tasks that share a metric."""
