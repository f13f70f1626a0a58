"""For each alert a fault that is really made: the alert fires, the fault is removed, and everything is silent again."""
