"""Embed a catalogue of any size with Spark: python embed_catalogue.py SNAPSHOT CATALOGUE ITEMS OUT (see ../HISTORY.md).

SNAPSHOT is a file with a version of a model, CATALOGUE the one that the model learned on, and ITEMS a Parquet file, or
a folder of them, with the columns that the catalogue was built from: ``id`` and a list of numbers for each modality.
OUT gets ``id`` and ``embedding``. Executors need omdml, and must see SNAPSHOT and CATALOGUE under the same names.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql.functions import struct
from pyspark.sql.pandas.functions import pandas_udf

from omdml.errors import ConfigurationError
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.protocols.catalogue import Catalogue


def opened(snapshot: str, catalogue: str) -> tuple[Snapshot, Catalogue]:
    """The version, and the catalogue in the coordinates that it learned in."""
    version, items = Snapshot.from_bytes(Path(snapshot).read_bytes()), open_catalogue(catalogue)
    if version.generation != items.generation:
        raise ConfigurationError(
            f"{snapshot} was learned on generation {version.generation}, and {catalogue} is generation "
            f"{items.generation}: name the catalogue that the model learns on, and a snapshot of today"
        )
    dims = dict(version.metric.dims)
    coordinates = "features" if dims == dict(items.in_coordinates("features").dims) else "mapped"
    return version, items.in_coordinates(coordinates)


def embed(session: SparkSession, snapshot: str, catalogue: str, items: str, out: str) -> None:
    """Write the embedding of each item to ``out``."""
    _, seen = opened(snapshot, catalogue)
    modalities = list(seen.raw_dims)

    # PySpark's annotations do not know functions of iterators, which its documentation recommends.
    @pandas_udf("array<float>")  # type: ignore[call-overload,untyped-decorator]
    def embedding(batches: Iterator[pd.DataFrame]) -> Iterator[pd.Series]:
        version, seen = opened(snapshot, catalogue)
        for batch in batches:
            raw: dict[str, Any] = {name: np.stack(batch[name].to_list()) for name in modalities}
            yield pd.Series(list(np.asarray(version.metric.embed(seen.scale(raw)), np.float32)))

    table = session.read.parquet(items)
    table.select("id", embedding(struct(*modalities)).alias("embedding")).write.parquet(out)


if __name__ == "__main__":
    # Executors of this machine run the Python that omdml is installed in.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    embed(SparkSession.builder.appName("embed a catalogue").getOrCreate(), *sys.argv[1:])
