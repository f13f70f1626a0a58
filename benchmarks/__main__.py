"""``python -m benchmarks [NAME ...]``: the benchmarks of these names, or all, one after the other.

Each also writes what it printed to ``build/benchmarks/NAME.json``.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.record import RecordingConsole

BENCHMARKS = (
    "demo",
    "speed",
    "learners",
    "coupled",
    "second_order",
    "quality",
    "mapped",
    "clicks",
    "pages",
    "pairs",
    "rankings",
    "experts",
    "guard",
    "drift",
    "parents",
    "service",
    "requests",
    "load",
    "route",
    "many_models",
    "new_models",
    "sizing",
    "failover",
    "start_up",
    "embedded_store",
    "consoles",
    "long_use",
    "filters",
    "items",
    "expand",
    "query_side",
    "two_stage",
    "missing",
    "million",
    "history",
    "parts",
)


def main(names: list[str]) -> int:
    """Run these benchmarks; returns the exit code."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]!r}: there are {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        console = RecordingConsole(width=None if sys.stdout.isatty() else 160)
        importlib.import_module(f"benchmarks.{name}").main(console)
        console.save(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
