"""What this package says while it works."""

import sys


def say(line: str) -> None:
    """Print one line on standard error: standard output is for addresses and paths."""
    print(line, file=sys.stderr, flush=True)
