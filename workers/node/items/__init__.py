"""Items that are put, changed and deleted while a node answers."""
