"""``python -m tests.fault.chaos [FAULT ...] [--times N] [--seed N]``: every fault, many times; prints the table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path

from rich.progress import Progress
from rich.table import Table

from benchmarks.record import RecordingConsole
from deploy.local import KafkaCluster
from tests.fault.chaos.faults import FAULTS, Fault, Trial, trial
from tests.fault.chaos.servers import ClusterServers, Servers

COLUMNS = (
    "fault",
    "times",
    "events",
    "letters",
    "lost",
    "doubled",
    "longest gap in learning",
    "longest gap in serving",
)


def main(arguments: list[str]) -> int:
    """Run faults; answers the exit code: 1 if anything was lost, doubled, or not as it was to be."""
    asked = parsed(arguments)
    console = RecordingConsole(width=None if sys.stdout.isatty() else 160)
    title = (
        "Faults under load: 5 models, one of them in parts, 4 partitions, 2 workers, 400 events/s, 1 in 8 keyless or "
        "hashed otherwise"
    )
    table, sound = Table(*COLUMNS, title=title), True
    with AllServers() as all_servers, Progress(console=console, disable=not sys.stdout.isatty()) as progress:
        for name in asked.faults or FAULTS:
            fault, times, began = FAULTS[name], asked.times or FAULTS[name].times, time.monotonic()
            bar = progress.add_task(fault.title, total=times)
            servers = all_servers.of(fault)
            with tempfile.TemporaryDirectory() as folder:
                result = tried(partial(trial, fault, times, asked.seed, servers, Path(folder)), progress, bar)
            table.add_row(fault.title, *result)
            sound &= result[3:5] == ["0", "0"]
            console.print(f"{name}: {', '.join(result)}; took {time.monotonic() - began:.0f} s", markup=False)
    console.print(table)
    console.save("chaos")
    return int(not sound)


class AllServers(ExitStack):
    """One broker, or a cluster of three, each with its stores: what a fault needs, started when first asked for."""

    def of(self, fault: Fault) -> Servers:
        return self._clustered if fault.cluster else self._single

    @cached_property
    def _single(self) -> Servers:
        return self.enter_context(Servers())

    @cached_property
    def _clustered(self) -> Servers:
        return self.enter_context(ClusterServers(self.enter_context(KafkaCluster())))


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(prog="tests.fault.chaos", description="What faults cost a service under load.")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"of {', '.join(FAULTS)}; all without it")
    parser.add_argument("--times", type=int, help="how often each is injected, within a quarter of an hour")
    parser.add_argument("--seed", type=int, default=0, help="of when, and to whom, things happen")
    asked = parser.parse_args(arguments)
    for name in asked.faults:
        if name not in FAULTS:
            parser.error(f"no fault {name!r}: there are {', '.join(FAULTS)}")
    return asked


def tried(run, progress: Progress, bar) -> list[str]:
    """The cells of a trial's row, or why it failed."""
    try:
        result: Trial = run(lambda: progress.advance(bar))
    except AssertionError as error:
        return ["failed", str(error)]
    counts = [f"{count:,}" for count in (result.times, *result.verdict)]
    return [*counts, f"{result.learning_s:.1f} s", f"{result.serving_s:.2f} s"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
