"""``python -m benchmarks history``: a model begun from an archive, beside a replay of the same records.

Both read the same records and learn the same triplets. The replay scores each before it learns it, one after another;
the archive is only summed up, chunk by chunk, in one process. Times are processor time, because the machine is shared.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from omdml.builders import from_labels
from omdml.feedback import Triplet, encode
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.process import one_thread
from omdml.workers.operate.history.archive import FILE_RECORDS, folder_of, put_file
from omdml.workers.operate.history.archived import by_chunk, find_records, pieces
from omdml.workers.operate.history.bootstrap import CHUNKS, SPAN, job_of, learned
from omdml.workers.operate.history.engines import alone
from omdml.workers.operate.replay import ReplayedModel
from omdml.workers.wiring.models import open_specs

ITEMS, CLASSES = 5000, 50
EVENTS, DIMS = int(os.environ.get("OMDML_HISTORY_EVENTS", "200000")), (128, 512)
SECRET = b"7" * 32


def main(console: Console) -> None:
    """Print how many events per second of processor time both learn, for each number of coordinates."""
    one_thread()
    table = Table("coordinates", "events", "replay", "bootstrap", "ratio", title="events a second of processor time")
    for dim in DIMS:
        with tempfile.TemporaryDirectory() as folder:
            replay, bootstrap = _rates(Path(folder), EVENTS, dim, seed=0)
        table.add_row(f"{dim}", f"{EVENTS:,}", f"{replay:,.0f}", f"{bootstrap:,.0f}", f"{bootstrap / replay:.2f}")
    console.print(table)


def _rates(folder: Path, events: int, dim: int, seed: int) -> tuple[float, float]:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, CLASSES, ITEMS)
    features = draw.normal(0, 1, (CLASSES, dim))[labels] + draw.normal(0, 1, (ITEMS, dim))
    items = {"item": features.astype(np.float32)}
    build_catalogue(folder / "items", items, ids=[f"i{row}" for row in range(ITEMS)])
    model = {"learner": "dca", "coordinates": "features", "init": "coordinates"}
    configuration = load(None, {}, {"catalogues": {"items": {"path": str(folder / "items")}}, "models": {"m": model}})
    spec, placement = open_specs(configuration).of("m"), Placement.first("murmur2", 1)
    home, archive = Partition("log", 0), folder / "archive"
    for begin in range(0, events, FILE_RECORDS):
        end = min(events, begin + FILE_RECORDS)
        rows = from_labels(labels, end - begin, seed + begin).tolist()
        triplets = (Triplet(model="m", query=f"i{q}", relevant=f"i{r}", irrelevant=f"i{s}", at=1.0) for q, r, s in rows)
        records = [Record(home, begin + place, encode(event)) for place, event in enumerate(triplets)]
        put_file(folder_of(archive, home) / f"{begin}.parquet", begin, end, records)
    result = find_records([str(archive)], 0, None)
    job = job_of("m", spec, configuration, open_specs, placement, SECRET, SPAN)
    replayed = ReplayedModel("m", spec.fresh(), spec, placement, SECRET)
    seconds = {"replay": 0.0, "bootstrap": 0.0}
    began = time.process_time()
    for piece in pieces(result, CHUNKS * SPAN):
        for _, some in by_chunk(piece, SPAN):
            replayed.learn(some)
    seconds["replay"] = time.process_time() - began
    began = time.process_time()
    begun = learned(job, spec, result, alone).model
    seconds["bootstrap"] = time.process_time() - began
    assert begun.learner.version == replayed.learner.version
    return events / seconds["replay"], events / seconds["bootstrap"]
