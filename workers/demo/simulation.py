"""The demo's people on any node: load, and a first look at what feedback does to a catalogue of one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from omdml.errors import ConfigurationError
from workers.demo.crowd import Crowd, Task
from workers.demo.held_out import PAGE, HeldOut
from workers.demo.interruption import Interrupted, interruptible
from workers.demo.labels import Labels, read_labels
from workers.demo.node_client import NodeClient
from workers.demo.observer import Measure, Observer
from workers.demo.people import Habits
from workers.demo.screen import open_screen

PRECISION = Measure(f"precision@{PAGE}", HeldOut.precision)


def run_simulation(
    node: str,
    labels: str | Path,
    *,
    model: str | None = None,
    comparisons: int = 1000,
    rate: float | None = None,
    wrong: float = 0.05,
    seed: int = 0,
    people: int = 8,
) -> int:
    """Let people search at a node, mark what they see, and tell it; prints to standard output.

    Parameters
    ----------
    node
        Its URL.
    labels
        CSV file with columns ``id`` and ``label``: who searches for an item finds those of the same label relevant.
        Items that it does not name are never marked.
    model
        May be left out where the node has one.
    comparisons, rate, people
        How many comparisons, how many of them a second (None: as fast as the node takes them), by how many at once.
    wrong
        Share of marks that say the opposite of the truth.
    seed
        Of the people, and of the choice of held-out queries.

    Returns
    -------
    int
        The exit code: 0, or 130 after Ctrl-C.

    Raises
    ------
    ConfigurationError
        The URL, the file or the model is none.
    NodeError
        The node is out of reach, or refuses.
    """
    console = Console()
    known = Labels(read_labels(labels), seed)
    task = Task(node, model or only_model(node), comparisons, rate, people, Habits(wrong=wrong), seed)
    crowd = Crowd(task, known)
    try:
        with interruptible(), Observer(task, known, PRECISION) as observer, open_screen(console) as show, crowd:
            told = observer.watch(crowd, show).last_line
        exit_code = 0
    except Interrupted as interrupted:
        told, exit_code = "interrupted", interrupted.exit_code
    console.print(f"{load(crowd)}\n{told}", highlight=False, soft_wrap=True)
    return exit_code


def only_model(url: str) -> str:
    """The name of the node's one model; raises ConfigurationError where there are several, or none."""
    client = NodeClient(url)
    try:
        names = list(client.models())
    finally:
        client.close()
    if len(names) != 1:
        raise ConfigurationError(
            f"node {url} has models {', '.join(names) or 'by pattern only'}: choose one with --model"
        )
    return names[0]


def load(crowd: Crowd) -> str:
    """What the crowd was to the node, and how long the node let it wait."""
    pace = crowd.sent / crowd.seconds if crowd.seconds else 0.0
    return (
        f"{len(crowd.search_s):,} searches, {crowd.sent:,} comparisons, {pace:,.0f} a second; "
        f"search {quantiles(crowd.search_s)}; feedback {quantiles(crowd.send_s)}"
    )


def quantiles(seconds: Sequence[float]) -> str:
    """Median and 99th percentile."""
    if not seconds:
        return "none"
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
