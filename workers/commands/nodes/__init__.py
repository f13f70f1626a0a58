"""Commands that ask a node over HTTP, as any other client does."""
