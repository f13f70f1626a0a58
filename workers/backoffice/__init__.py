"""A process beside a node that answers operators: the health of the installation, and its dead letters."""
