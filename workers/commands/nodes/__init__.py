"""Commands that ask a node over HTTP, as any program can."""
