"""The node over HTTP: what it answers, and how much it lets in."""
