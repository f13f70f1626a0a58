"""``/items``: items are listed, put, changed and deleted."""
