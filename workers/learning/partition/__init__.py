"""One partition that a worker owns: its models, taken, published and saved exactly once."""
