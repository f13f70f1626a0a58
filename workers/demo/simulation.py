"""The demo's people on any node: as load, or to see what feedback does to a catalogue of your own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from omdml import DEFAULT_LEARNER
from omdml.client import Live
from omdml.errors import ConfigurationError
from omdml.learners import LEARNERS
from omdml.workers.demo.observer import Measure, Observer
from omdml.workers.demo.people.crowd import Crowd, Task
from omdml.workers.demo.people.event_forms import ordered_pair, pair, triplet
from omdml.workers.demo.people.habits import WRONG, Habits
from omdml.workers.demo.people.labels import Labels, read_labels
from omdml.workers.demo.people.orders import Order
from omdml.workers.demo.people.unmarked_queries import PAGE, UnmarkedQueries
from omdml.workers.demo.scenarios import Subject
from omdml.workers.demo.screen import open_screen
from omdml.workers.demo.services.interruption import Interrupted, interruptible
from omdml.workers.demo.services.node_client import NodeClient

PRECISION = Measure(f"precision@{PAGE}", UnmarkedQueries.precision)


def run_simulation(
    node: str,
    labels: str | Path,
    *,
    model: str | None = None,
    comparisons: int = 1000,
    rate: float | None = None,
    wrong: float = WRONG,
    seed: int = 0,
    people: int = 8,
    token: str = "",
) -> int:
    """Let people search at a node, mark what they see, and send the marks; prints to standard output.

    Parameters
    ----------
    node
        The URL of the node.
    labels
        A CSV file with columns ``id`` and ``label``. Items with the query's label are relevant. A model with several
        tasks needs a column for each task, with its name. For a model that learns an order labels are numbers, and
        items with a larger number are relevant. Items that are not in the file are never marked.
    model
        The name of the model; it may be left out if the node has only one.
    comparisons, rate, people
        How many comparisons to make, how many per second (None means as fast as the node takes them), and how many
        people search at the same time.
    wrong
        The share of marks that say the opposite of the truth.
    seed
        Seed of the people's choices, and of the choice of test queries.
    token
        The token of the node, if it has one.

    Returns
    -------
    int
        The exit code: 0, or 130 after Ctrl-C.

    Raises
    ------
    ConfigurationError
        The URL or the file is not valid, there is no such model, or the model learns from judgements of sets.
    ClientError
        The node is out of reach, or refuses a request.
    """
    console = Console()
    served = find_model(node, model)
    subject = subject_of(served, labels, seed)
    task = Task(node, served.model, comparisons, rate, people, Habits(wrong=wrong), seed, token=token)
    crowd = Crowd(task, *subject.truths, form=subject.form)
    try:
        with (
            interruptible(),
            Observer(task, subject.truths, PRECISION) as observer,
            open_screen(console) as show,
            crowd,
        ):
            last_line = observer.watch(crowd, show).last_line
        exit_code = 0
    except Interrupted as interrupted:
        last_line, exit_code = "interrupted", interrupted.exit_code
    console.print(f"{load(crowd)}\n{last_line}", highlight=False, soft_wrap=True)
    return exit_code


def find_model(url: str, name: str | None) -> Live:
    """The node's model of this name, or its only one if ``name`` is None.

    Raises ConfigurationError if no name is given and the node has several models, none, or a pattern: of a pattern the
    node knows each name that somebody asked for, even if it is a wrong one.
    """
    client = NodeClient(url)
    try:
        models, patterns = client.models(), client.patterns()
    finally:
        client.close()
    if name is not None:
        return models.get(name, Live(name, ready=False))
    if len(models) != 1 or patterns:
        available = ", ".join([*models, *patterns]) or "none"
        raise ConfigurationError(f"which model? Node {url} has models {available}: choose one with --model")
    return next(iter(models.values()))


def subject_of(model: Live, labels: str | Path, seed: int) -> Subject:
    """What people who know these labels say to a model; raises ConfigurationError."""
    kinds = LEARNERS[model.learner or DEFAULT_LEARNER].accepts
    if "triplet" in kinds:
        return Subject("labels", [Labels(read_labels(labels), seed)], triplet)
    if "pair" in kinds:
        tasks: list[str | None] = [*model.tasks] or [None]
        columns = ["label"] if len(tasks) == 1 else model.tasks
        truths = [Labels(read_labels(labels, c), seed, task) for task, c in zip(tasks, columns, strict=True)]
        return Subject("tasks", truths, pair)
    if "quadruplet" in kinds:
        return Subject("order", [Order(numbers(read_labels(labels)), seed)], ordered_pair)
    raise ConfigurationError(
        f"model {model.model!r} learns from judgements of sets, but {labels} has no sets: send events with omdml feed"
    )


def numbers(labels: Mapping[str, str]) -> dict[str, float]:
    """Labels as numbers; raises ConfigurationError, which names the first label that is not a finite number."""
    amounts = {}
    for item, label in labels.items():
        try:
            amounts[item] = float(label)
        except ValueError:
            amounts[item] = math.nan
        if not math.isfinite(amounts[item]):
            raise ConfigurationError(f"id {item!r} has label {label!r}: this model learns an order, expected a number")
    return amounts


def load(crowd: Crowd) -> str:
    """Describe the load in one line: searches, comparisons, rate, and how long the node took to answer."""
    pace = crowd.sent / crowd.seconds if crowd.seconds else 0.0
    return (
        f"{len(crowd.search_s):,} searches, {crowd.sent:,} comparisons, {pace:,.0f} a second; "
        f"search {quantiles(crowd.search_s)}; feedback {quantiles(crowd.send_s)}"
    )


def quantiles(seconds: Sequence[float]) -> str:
    """The median and the 99th percentile of these numbers."""
    if not seconds:
        return "none"
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return f"p50 {p50:.1f} ms, p99 {p99:.1f} ms"
