"""Messages of this package while it works."""

import sys


def say(line: str) -> None:
    """Print a line on standard error, because standard output is for addresses and paths."""
    print(line, file=sys.stderr, flush=True)
