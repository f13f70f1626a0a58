"""Fits a start on the first part of a log, for ``omdml replay --fit``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omdml.batch import batch_learners, batch_start
from omdml.errors import StartError
from omdml.learners import DCA, LEARNERS, OMDML, Learner
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Record
from omdml.workers.configuration.specs import Spec
from omdml.workers.events.decoding import Batch, sort_out
from omdml.workers.events.lookup import Located
from omdml.workers.operate.replay import ReplayedModel

# The default number of comparisons in the first part. Fitting takes about a minute at 1,000 dimensions.
MOST = 5000

Array = NDArray[Any]


class Parts(NamedTuple):
    """A log that is cut between two events. ``events`` is how many events of the model are in the first part."""

    first: list[Record]
    rest: Iterator[list[Record]]
    events: int


def cut(log: Iterator[list[Record]], model: str, spec: Spec, most: int = MOST) -> Parts:
    """Cut a log after the first half of its comparisons, or after the first ``most`` if that is less.

    It reads, and keeps in memory, only as much as it needs to find the cut. Raises StartError if there is no event
    before the cut, or if the learner has no batch form.
    """
    check_fittable(spec.learner)
    head: list[Record] = []
    # The number of comparisons of each event, by partition number and offset.
    counts: dict[tuple[int, int], int] = {}
    for records in log:
        head += records
        batches, _ = sort_out(records, lambda name: spec.learner.accepts if name == model else None)
        batch = batches.get(model, Batch())
        for record, count in zip(batch.records, batch.id_counts, strict=True):
            counts[record.partition.number, record.offset] = count // spec.learner.width
        if sum(counts.values()) >= 2 * most:
            break
    ends = np.cumsum([counts.get((record.partition.number, record.offset), 0) for record in head])
    end = int(np.searchsorted(ends, min(most, int(ends[-1]) // 2 if len(ends) else 0), side="right"))
    events = sum((record.partition.number, record.offset) in counts for record in head[:end])
    if not events:
        raise StartError(f"the log holds {sum(counts.values())} comparisons of model {model!r}: too few to fit on")
    return Parts(head[:end], joined(head[end:], log), events)


def check_fittable(learner: type[Learner]) -> None:
    """Raise StartError if a learner has no batch form; the message says what to pass instead."""
    if learner.name in batch_learners():
        return
    if learner is DCA:
        raise StartError(
            "dca needs no start that is fitted on a log, because its sums over the log are its batch solution and a "
            "replay computes them: leave --fit out"
        )
    others = [name for name in batch_learners() if learner.accepts <= LEARNERS[name].accepts]
    what = f"{learner.name} has no batch form to begin at"
    if not others:
        raise StartError(f"{what}, nor has any learner of {'s, '.join(sorted(learner.accepts))}s: leave --fit out")
    first = OMDML.name if OMDML.name in others else others[0]
    raise StartError(f"{what}: pass --learner {first} --fit, or one of {', '.join(others)}; or leave --fit out")


def joined(head: list[Record], log: Iterator[list[Record]]) -> Iterator[list[Record]]:
    """The records that were read already, then the rest."""
    if head:
        yield head
    yield from log


def fitted(name: str, spec: Spec, placement: Placement, first: list[Record], secret: bytes | None) -> ReplayedModel:
    """A model whose learner begins at the optimum over these records; raises StartError if it cannot be fitted."""
    check_fittable(spec.learner)
    dims = dict(spec.catalogue.dims)
    unfitted = spec.learner(dims=dims, **spec.parameters)
    model = ReplayedModel(name, spec.fresh(), spec, placement, secret)
    rows, margin, features = gathered(model.locate(first), list(dims))
    init = {modality: x.astype(unfitted.dtype) for modality, x in batch_start(unfitted, rows, features, margin).items()}
    model.go_on_with(spec.learner(dims=dims, **{**spec.parameters, "init": init}))
    return model


def gathered(batches: list[Located], modalities: list[str]) -> tuple[Array, Array, dict[str, Array]]:
    """Join the comparisons of several tables: rows (T, w), margins (T,), and a table of the items that they name."""
    rows, margins, tables, item_count = [], [], [], 0
    for located in batches:
        touched, renumbered = np.unique(np.asarray(located.compared, np.int64), return_inverse=True)
        rows.append(renumbered.reshape(np.shape(located.compared)) + item_count)
        margins.append(located.columns["margin"] if "margin" in located.columns else np.ones(len(rows[-1])))
        tables.append({name: located.features[name][touched] for name in modalities})
        item_count += len(touched)
    return (
        np.concatenate(rows),
        np.concatenate(margins),
        {name: np.concatenate([table[name] for table in tables]) for name in modalities},
    )
