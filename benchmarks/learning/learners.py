"""Speed of every learner against its one-event numpy loop: the slow twins of the tests, on one core, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.learning.sets import judgements, setnet_loop
from benchmarks.learning.speed import BETA, best_of, one_event_loop
from omdml import LEARNERS
from omdml.blas import one_blas_thread
from tests.naive import coupled as naive_coupled
from tests.naive import dca as naive_dca
from tests.naive import diagonal as naive_diagonal
from tests.naive import full as naive_full
from tests.naive import oasis as naive_oasis

Array = NDArray[Any]
ITEMS, SMALL, LARGE = 2_000, 64, 512
# Seconds for which a loop is run, about.
LOOP_S = 1.0
TASKS = ["one", "two"]
Loop = Callable[[Any, Array], object]


class Case(NamedTuple):
    """A learner at one shape: its options, and what it learns from."""

    options: dict[str, Any]
    # Items in a comparison, or 0 if the learner takes judged sets.
    width: int
    columns: Callable[[int], dict[str, Any]]
    # It is called with rows and the items' float64 matrix.
    loop: Loop
    events: int


def items(dim: int) -> Array:
    """Gaussian items whose mean squared distance is 1."""
    return np.random.default_rng(0).standard_normal((ITEMS, dim)) / np.sqrt(2 * dim)


def nothing(_: int) -> dict[str, Any]:
    """Learners of comparisons take rows only, and no further columns."""
    return {}


def pairs(count: int, tasks: list[str]) -> dict[str, Any]:
    """Alternately similar and not, tasks by turns."""
    row = np.arange(count)
    return {"similar": row % 3 == 0, "task": np.array(tasks)[row % len(tasks)]}


def cases(dim: int) -> dict[str, Case]:
    """Every learner, with options under which both sides do the same arithmetic."""
    eye, rank, ones = np.eye(dim), min(dim, 64), np.ones(dim)
    low = np.random.default_rng(1).standard_normal((rank, dim)) / np.sqrt(rank)
    half = np.linalg.qr(np.random.default_rng(2).standard_normal((dim, dim // 2)))[0]
    singular = 2 * half @ half.T
    full = {"beta": BETA, "memory": 0, "gamma": 1.0}

    def margins(rows: Array) -> Array:
        return np.ones(len(rows))

    def lomdml(rows: Array, x: Array) -> object:
        return one_event_loop(rows, [x], 1.0, [low.copy()])

    def omdml(start: Array, C: float) -> Loop:
        return lambda rows, x: naive_full.omdml(rows, {"x": x}, {"x": start}, margins(rows), C=C, **full)

    def qwise(rows: Array, x: Array) -> object:
        return naive_full.qwise(rows, {"x": x}, {"x": singular}, margins(rows), eta=0.1)

    def oasis(rows: Array, x: Array) -> object:
        return naive_oasis.oasis(rows, {"x": x}, {"x": eye}, C=0.1)

    def diagonal(rows: Array, x: Array) -> object:
        return naive_diagonal.diagonal(rows, margins(rows), x, ones, eta=0.01, lam=1e-4, exact=True)

    def signed(rows: Array, x: Array) -> object:
        return naive_diagonal.signed(rows, margins(rows), x, 0 * ones, eta=0.01, lam=1e-4, exact=True)

    def coupled(stacks: list[list[str]]) -> Loop:
        start = {name: low for stack in stacks for name in stack}
        shares = [1.0] * len(stacks[0])
        return lambda rows, x: naive_coupled.coupled(
            rows, *signs(rows, len(stacks)), x, start, stacks, shares=shares, eta=1e-3, exact=False
        )

    def mtlmca(rows: Array, x: Array) -> object:
        return naive_coupled.mtlmca(
            rows, *signs(rows, 2), x, low, [np.eye(rank)] * 2, shares=[1.0, 1.0], eta=1e-3, exact=False
        )

    fixed = {"rank": rank, "eta": 1e-3, "step": "ogd", "init": "gaussian"}
    two_tasks, one_task = {**fixed, "tasks": TASKS}, fixed
    many, few = 20_000, 20_000 if dim == SMALL else 1_000
    return {
        "lomdml": Case({"init": {"x": low}, "eta": 1e-6}, 3, nothing, lomdml, many),
        "omdml, C 0.001": Case({**full, "C": 1e-3, "init": {"x": eye}}, 3, nothing, omdml(eye, 1e-3), few),
        "omdml": Case({**full, "init": {"x": eye}}, 3, nothing, omdml(eye, 0.1), few),
        "omdml, singular": Case({**full, "init": {"x": singular}}, 3, nothing, omdml(singular, 0.1), few),
        "qwise, singular": Case({"eta": 0.1, "init": {"x": singular}}, 4, nothing, qwise, few),
        "dca": Case({}, 3, nothing, lambda rows, x: naive_dca.dca(rows, x - x.mean(0), eye, x.var(0), 0), few),
        "oasis": Case({"C": 0.1, "init": {"x": eye}}, 3, nothing, oasis, many),
        "diagonal": Case({}, 4, nothing, diagonal, many),
        "signed": Case({}, 4, nothing, signed, many),
        "cpmtml": Case(two_tasks, 2, lambda n: pairs(n, TASKS), coupled([["s", "1"], ["s", "2"]]), many),
        "stml": Case(two_tasks, 2, lambda n: pairs(n, TASKS), coupled([["1"], ["2"]]), many),
        "utml": Case(one_task, 2, lambda n: {"similar": np.arange(n) % 3 == 0}, coupled([["u"]]), many),
        "setnet": Case({"rank": rank, "eta": 1e-3, "step": "ogd"}, 0, nothing, set_loop(dim, rank), few // 20),
        "mtlmca": Case(two_tasks, 2, lambda n: pairs(n, TASKS), mtlmca, many),
    }


def set_loop(dim: int, rank: int) -> Loop:
    """The one-event loop of SetNet, from its own start."""
    sets = LEARNERS["setnet"](dims={"x": dim}, rank=rank)
    sets.start({"x": items(dim)})
    network = {name: array for name, array in sets.matrices.items() if name != "scale"}
    return lambda rows, x: setnet_loop(rows, x, network, eta=1e-3)


def signs(rows: Array, tasks: int) -> tuple[Array, Array]:
    """The similarities of :func:`pairs`, as the twins take them."""
    row = np.arange(len(rows))
    return np.where(row % 3 == 0, 1, -1), row % tasks


def loop_seconds(loop: Loop, rows: Array, x: Array) -> float:
    """Seconds per event of the loop, measured over about a second."""
    count = 20
    while True:
        begin = time.perf_counter()
        loop(rows[:count], x)
        spent = time.perf_counter() - begin
        if spent > LOOP_S / 4 or count >= len(rows):
            return spent / count
        count = min(len(rows), 2 * count)


def measure(name: str, case: Case, x: Array) -> tuple[float, float, Any]:
    """Microseconds per event of the loop and of the learner, and the learner afterwards."""
    rows: Any = np.random.default_rng(3).integers(0, ITEMS, (case.events, case.width))
    if not case.width:
        rows = judgements(case.events, ITEMS)
    features = {"x": x.astype(np.float32)}
    learner = LEARNERS[name.partition(",")[0]]
    columns = case.columns(case.events)

    def made() -> Any:
        model = learner(dims={"x": x.shape[1]}, **case.options)
        model.start(features)
        return model

    def run(model: Any) -> None:
        model.learn_many(rows, features, **columns)

    run(made())
    spent = min(best_of(made, run, 3)) / case.events
    model = made()
    run(model)
    return loop_seconds(case.loop, rows, x) * 1e6, spent * 1e6, model


def main(console: Console) -> None:
    columns = ("learner", "shape", "updates", "projected", "numpy loop", "omdml", "ratio")
    table = Table(*columns, title="Every learner against its one-event numpy loop, us an event (float32, one core)")
    with one_blas_thread():
        for dim in (SMALL, LARGE):
            x = items(dim)
            for name, case in cases(dim).items():
                loop, ours, model = measure(name, case, x)
                updated = f"{model.updates / model.version:.0%}"
                bites = f"{sum(model.bites.values()) / model.updates:.0%}" if hasattr(model, "bites") else ""
                times = (f"{loop:,.0f}", f"{ours:,.1f}", f"{loop / ours:,.1f}")
                table.add_row(name, str(dim), updated, bites, *times)
    console.print(table)
