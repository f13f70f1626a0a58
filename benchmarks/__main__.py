"""``python -m benchmarks [NAME ...]``: the benchmarks of these names, or all, one after the other.

Each also writes what it printed to ``build/benchmarks/NAME.json``.
"""

from __future__ import annotations

import importlib
import sys

from benchmarks.record import RecordingConsole

MODULES = (
    "demo",
    "learning.speed",
    "learning.learners",
    "learning.coupled",
    "learning.second_order",
    "quality",
    "mapped",
    "clicks",
    "rivals",
    "feedback.pages",
    "feedback.pairs",
    "feedback.rankings",
    "feedback.experts",
    "feedback.guard",
    "drift",
    "feedback.parents",
    "services.service",
    "searches.requests",
    "searches.load",
    "services.route",
    "services.bad_events",
    "services.many_models",
    "services.new_models",
    "services.sizing",
    "services.failover",
    "services.start_up",
    "services.embedded_store",
    "services.leaks",
    "searches.consoles",
    "searches.long_use",
    "searches.filters",
    "searches.items",
    "searches.expand",
    "searches.query_side",
    "searches.two_stage",
    "searches.missing",
    "searches.million",
    "searches.moved",
    "searches.ten_million",
    "services.history",
    "services.parts",
)
BENCHMARKS = {module.rpartition(".")[2]: module for module in MODULES}


def main(names: list[str]) -> int:
    """Run these benchmarks; returns the exit code."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"no benchmark {unknown[0]!r}: there are {', '.join(BENCHMARKS)}")
        return 2
    for name in names or BENCHMARKS:
        console = RecordingConsole(width=None if sys.stdout.isatty() else 160)
        importlib.import_module(f"benchmarks.{BENCHMARKS[name]}").main(console)
        console.save(name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
