"""The first lines of every command: until the command line is there, a signal ends the process without a word."""

from __future__ import annotations

import os
import signal


def end(number: int, frame: object) -> None:
    """End as if the process did not handle the signal: a shell that waits for it sees exit code 130 or 143.

    Linux does not let such a signal end the first process of a container, so that process exits with this code.
    """
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def main() -> None:
    """Run a command. Workers and nodes take the signals over; all other commands clean up after Ctrl-C."""
    numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN]
    for number in numbers:
        signal.signal(number, end)
    from omdml.workers.cli import main as omdml

    if signal.SIGINT in numbers:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    omdml()


if __name__ == "__main__":
    main()
