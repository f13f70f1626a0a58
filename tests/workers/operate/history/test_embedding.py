"""The example that embeds a catalogue with Spark (deploy/examples/embed_catalogue.py).

It is imported late, because every process of tests imports this file, and the example imports pandas and PySpark.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from omdml.errors import ConfigurationError
from omdml.learners import DCA
from omdml.snapshot import Snapshot
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.workers.cli import main
from tests.support.catalogues.exports import read
from tests.support.worlds import ITEMS, items, triplets


def described(folder):
    """Items in a Parquet file of many row groups, their catalogue, and a version that learned on its map."""
    features, _ = items()
    table = {name: pa.array(list(matrix)) for name, matrix in features.items()}
    parquet.write_table(pa.table({"id": [f"i{row}" for row in range(ITEMS)], **table}), folder / "items.parquet",
                        row_group_size=25)  # fmt: skip
    built = build_catalogue(folder / "items", [str(folder / "items.parquet")], mapped=True)
    catalogue = built.in_coordinates("mapped")
    learner = DCA(dims=dict(catalogue.dims), init="coordinates")
    learner.learn_many(triplets(400), catalogue.features)
    snapshot = Snapshot(model="shop", learner="dca", version=400, generation=catalogue.generation, event_time=None,
                        oldest_event_time=None, progress={}, metric=learner.metric)  # fmt: skip
    (folder / "shop.snapshot").write_bytes(snapshot.to_bytes())
    return snapshot


@pytest.mark.deep
def test_a_catalogue_embedded_with_spark_is_what_an_export_writes(tmp_path, spark):
    from deploy.examples.embed_catalogue import embed

    snapshot = described(tmp_path)
    names = [str(tmp_path / name) for name in ("shop.snapshot", "items", "items.parquet", "out")]
    embed(spark, *names)
    table = parquet.read_table(tmp_path / "out")
    result = dict(zip(table["id"].to_pylist(), np.array(table["embedding"].to_pylist()), strict=True))
    store = DirectoryStore(tmp_path / "state")
    store.publish(snapshot, store.claim("shop").epoch)
    (tmp_path / "omdml.toml").write_text(
        f'[store]\nurl = "dir:{tmp_path}/state"\n[catalogues.items]\npath = "{tmp_path}/items"\n[models.shop]\n'
    )
    done = CliRunner().invoke(
        main, ["export", "shop", str(tmp_path / "vectors"), "-c", str(tmp_path / "omdml.toml"), "--format", "parquet"]
    )
    assert done.exit_code == 0, done.output
    _, vectors, _ = read(tmp_path / "vectors")
    assert result.keys() == vectors.keys()
    for name, vector in vectors.items():
        np.testing.assert_allclose(result[name], vector, atol=2e-6)


def test_a_snapshot_of_another_catalogue_is_refused(tmp_path):
    from deploy.examples.embed_catalogue import opened

    described(tmp_path)
    features, _ = items(seed=1)
    build_catalogue(tmp_path / "others", features)
    with pytest.raises(ConfigurationError, match="name the catalogue that the model learns on"):
        opened(str(tmp_path / "shop.snapshot"), str(tmp_path / "others"))
