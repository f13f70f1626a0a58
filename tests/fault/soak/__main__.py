"""``python -m tests.fault.soak``: soaks for SOAK_S seconds (1800); table and plot go into build/.

Faults come one after the other, each once every model has learned something since the one before. The first worker and
the nodes live from the beginning to the end; the second worker is killed and started again by the first fault. Ends
with 1 if something that lives throughout holds more and more, or if an event was lost or learned twice.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from tests.fault.chaos.breaking import networks, pauses, rebalances, restarts
from tests.fault.chaos.servers import Servers
from tests.fault.chaos.service import Service
from tests.fault.chaos.verdict import Verdict, judge
from tests.fault.soak.plot import drawn
from tests.fault.soak.samples import (
    MEASURES,
    SHOWN,
    USED,
    Sample,
    Sampler,
    growth,
    lived_throughout,
    quarters,
    rise,
    scattered,
)
from tests.fault.soak.service import Soaked

BUILD = Path("build")
KILLED = 1
BETWEEN_S = 5.0


def kill_second(service: Service, chance: Random) -> None:
    """Kill the second worker; its supervisor starts it again. The first one lives, so that it can be measured."""
    service.workers[KILLED].kill()
    service.start(KILLED)


FAULTS: dict[str, Callable[[Service, Random], None]] = {
    "kill -9 of worker 2": kill_second,
    "Valkey restarted": restarts.store,
    "a worker paused beyond its session": pauses.others_took_over,
    "worker 1 cut off from Valkey, 20 s": networks.store_out_of_reach,
    "worker 1 cut off from Kafka, 20 s": networks.log_out_of_reach,
    "Kafka restarted": restarts.broker,
    "a third worker joins and leaves, 25 s": rebalances.storm,
}


def main() -> int:
    """Soak, and write down what was seen; answers the exit code."""
    length_s = float(os.environ.get("SOAK_S", "1800"))
    with tempfile.TemporaryDirectory() as folder, Servers() as servers:
        samples, verdict, injected, took_s = soaked(servers, Path(folder), length_s)
    results = [
        f"{name}: {sentence}"
        for name, some in samples.items()
        if lived_throughout(some)
        for sentence in (*(growth(some, measure) for measure in MEASURES), scattered(some))
        if sentence
    ]
    title = f"Soak of {took_s / 60:.1f} minutes: {len(Soaked.models)} models, {Soaked.rate} events/s, mixed faults"
    flat = results or ["Memory, files and threads of what lived throughout are flat."]
    report = "\n".join([title, "", table(samples), "", summary(verdict, injected), "", *flat])
    BUILD.mkdir(exist_ok=True)
    (BUILD / "soak.md").write_text(report + "\n")
    (BUILD / "soak.svg").write_text(drawn(samples, title))
    print(report)
    return int(bool(results or verdict.lost or verdict.doubled))


def soaked(
    servers: Servers, folder: Path, length_s: float
) -> tuple[dict[str, list[Sample]], Verdict, Counter[str], float]:
    """Samples by process, what became of the events, how often each fault was made, and how long it took."""
    chance, injected = Random(0), Counter[str]()
    server = servers.store("valkey")
    with Soaked(folder, servers, server.url, server.url_by_detour) as service:
        service.store_server, began = server, time.monotonic()
        sampler = Sampler(lambda: service.pids)
        try:
            for name in itertools.cycle(FAULTS):
                # Between faults the service has time to do nothing but learn.
                time.sleep(BETWEEN_S)
                if time.monotonic() - began >= length_s:
                    break
                print(f"{time.monotonic() - began:5.0f} s: {name}", flush=True)
                FAULTS[name](service, chance)
                service.learns()
                service.injected += 1
                injected[name] += 1
        finally:
            sampler.end()
        took_s = time.monotonic() - began
        verdict = judge(service)
        service.every_node_serves_all()
        return sampler.samples, verdict, injected, took_s


def table(samples: Mapping[str, Sequence[Sample]]) -> str:
    """In Markdown: what each process held, by quarters of the time."""
    lines = ["| process | " + " | ".join(f"{what}, by quarter" for what, _ in SHOWN) + " | in use: MB an hour |"]
    lines.append("|---|" + "---|" * (len(SHOWN) + 1))
    for name, some in samples.items():
        cells = [" ".join(f"{number:.0f}" for number in quarters(some, field)) for _, field in SHOWN]
        started = len({entry.pid for entry in some})
        cells.append(f"{rise(some, USED):+.0f}" if started == 1 else "-")
        lines.append(f"| {name}{f', started {started} times' if started > 1 else ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(verdict: Verdict, injected: Counter[str]) -> str:
    """What was done to it, and what became of the events."""
    faults = ", ".join(f"{name} ({times})" for name, times in injected.items())
    return (
        f"{injected.total()} faults: {faults}. {verdict.events:,} events, {verdict.letters:,} dead letters as they "
        f"should be, {verdict.lost} lost, {verdict.doubled} doubled."
    )


if __name__ == "__main__":
    sys.exit(main())
