"""Shows a running demo: as a live table on a terminal, otherwise as a line every few seconds."""

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
# Characters of a full bar. Labels and values beside it fit into a terminal of 80 characters.
BAR = 26


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The state of the demo at one moment.

    Attributes
    ----------
    sent, of
        How many comparisons the node has taken, of how many.
    measure
        The name of the measure. ``before`` and ``now`` are its values over the test queries.
    measured
        How many comparisons had been sent when ``now`` was measured. Measuring takes a while.
    version
        How many comparisons the live version at the node has learned.
    mistake_rate
        The share of the last thousand comparisons that the metric got wrong; None if not known.
    weights
        The weights of the modalities, if known.
    tasks
        The measure before and now for each task, if there are several; ``before`` and ``now`` are their means.
    looks
        Pairs of a number of comparisons and the measure after it.
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
        """The measure before any feedback and now; and if more was sent since, after how many comparisons that was."""
        older = f" after {self.measured:,}" if self.measured != self.sent else ""
        return f"{self.measure} {change(self.before, self.now)}{older}"

    @property
    def click_to_live(self) -> str:
        """Median and 99th percentile of the time from a click to the version that has learned it, as text."""
        if self.freshness is None:
            return "not yet"
        return f"p50 {self.freshness.p50_s * 1000:.0f} ms, p99 {self.freshness.p99_s * 1000:.0f} ms"

    @property
    def course(self) -> str:
        """The measure at every look, as text; empty if there was none."""
        return ", ".join(f"{value:.3f} after {count:,}" for count, value in self.looks)

    @property
    def last_line(self) -> str:
        """The result of the demo in one line."""
        return f"{self.quality} after {self.sent:,} comparisons; click-to-live {self.click_to_live}"


Show = Callable[[Figures], None]


def change(before: float, now: float) -> str:
    """Format a value before and now."""
    return f"{before:.3f} -> {now:.3f}"


@contextmanager
def open_screen(console: Console) -> Iterator[Show]:
    """Open a screen; yields the function to call with each new set of figures."""
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
    grid.add_row("test queries", f"{bar(figures.now)} {figures.quality}")
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
    """A share from 0 to 1 as a bar of rich markup."""
    full = round(max(0.0, min(1.0, share)) * BAR)
    return f"[cyan]{'█' * full}[/][dim]{'░' * (BAR - full)}[/]"
