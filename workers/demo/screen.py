"""What people see of a running demo: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.live import Live
from rich.table import Table

from omdml.client import Freshness

LINE_EVERY_S = 3.0
# How many characters stand for the whole.
BAR = 40


@dataclass(frozen=True, kw_only=True)
class Figures:
    """How it stands.

    Attributes
    ----------
    measure
        The name of the measure that ``before`` and ``now`` hold, over the held-out queries.
    measured
        Comparisons that had been sent when ``now`` was measured: measuring takes a while.
    version
        Comparisons that the node's answers know.
    mistake_rate
        Of the last thousand comparisons, share that the metric had the wrong way round; None if not known.
    weights
        Of modalities, where known.
    tasks
        Before and now of each task, if there are several; ``before`` and ``now`` are their means.
    looks
        The measure after some numbers of comparisons.
    """

    sent: int
    of: int
    measure: str
    before: float
    now: float
    measured: int
    version: int
    freshness: Freshness | None = None
    mistake_rate: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    tasks: Mapping[str, Sequence[float]] = field(default_factory=dict)
    looks: Sequence[tuple[int, float]] = ()

    @property
    def quality(self) -> str:
        """The measure, from before any feedback to now; if more was sent since, after how many comparisons."""
        older = f" after {self.measured:,}" if self.measured != self.sent else ""
        return f"{self.measure} {change(self.before, self.now)}{older}"

    @property
    def click_to_live(self) -> str:
        """Median and 99th percentile of the seconds from a click to the version that knows it."""
        if self.freshness is None:
            return "not yet"
        return f"p50 {self.freshness.p50_s * 1000:.0f} ms, p99 {self.freshness.p99_s * 1000:.0f} ms"

    @property
    def course(self) -> str:
        """The measure at every look; empty if there was none."""
        return ", ".join(f"{value:.3f} after {count:,}" for count, value in self.looks)

    @property
    def last_line(self) -> str:
        """What is to be remembered of all this."""
        return f"{self.quality} after {self.sent:,} comparisons; click-to-live {self.click_to_live}"


Show = Callable[[Figures], None]


def change(before: float, now: float) -> str:
    """The value before and the value now."""
    return f"{before:.3f} -> {now:.3f}"


@contextmanager
def open_screen(console: Console) -> Iterator[Show]:
    """What to show figures with, as often as there are new ones."""
    if not console.is_terminal:
        yield _lines(console)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda figures: live.update(table(figures), refresh=True)


def _lines(console: Console) -> Show:
    shown_at = 0.0

    def show(figures: Figures) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= LINE_EVERY_S:
            shown_at = time.monotonic()
            console.print(line(figures), highlight=False, soft_wrap=True)

    return show


def line(figures: Figures) -> str:
    """The state of the demo in one line, for a log."""
    parts = [f"{figures.sent:,} comparisons", figures.quality, f"version {figures.version:,} live"]
    parts += [f"{task} {change(*values)}" for task, values in figures.tasks.items()]
    if figures.mistake_rate is not None:
        parts.append(f"mistakes {figures.mistake_rate:.1%}")
    parts.append(f"click-to-live {figures.click_to_live}")
    if figures.weights:
        parts.append(", ".join(f"{name} {weight:.2f}" for name, weight in figures.weights.items()))
    return "; ".join(parts)


def table(figures: Figures) -> Table:
    """The state of the demo as a table with bars, for a terminal."""
    grid = Table(show_header=False, box=None, padding=(0, 2))
    grid.add_column(style="bold")
    grid.add_row("comparisons", f"{bar(figures.sent / figures.of)} {figures.sent:,} of {figures.of:,}")
    grid.add_row("held-out queries", f"{bar(figures.now)} {figures.quality}")
    for count, value in figures.looks:
        grid.add_row(f"  after {count:,} comparisons", f"{bar(value)} {figures.measure} {value:.3f}")
    for task, values in figures.tasks.items():
        grid.add_row(f"of {task}", f"{bar(values[-1])} {figures.measure} {change(*values)}")
    if figures.mistake_rate is not None:
        grid.add_row("mistakes, last 1,000", f"{bar(figures.mistake_rate)} {figures.mistake_rate:.1%}")
    for name, weight in figures.weights.items():
        grid.add_row(f"weight of {name}", f"{bar(weight)} {weight:.2f}")
    grid.add_row("version live at the node", f"{figures.version:,}")
    grid.add_row("click-to-live", figures.click_to_live)
    return grid


def bar(share: float) -> str:
    """A share of 1 as a bar."""
    full = round(max(0.0, min(1.0, share)) * BAR)
    return f"[cyan]{'█' * full}[/][dim]{'░' * (BAR - full)}[/]"
