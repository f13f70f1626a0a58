"""A reader of exports, as deploy/EXPORT.md says to read them."""

from __future__ import annotations

import json

import numpy as np
from pyarrow import parquet

from omdml.workers.operate.export.vectors import spread


def read(folder):
    """Read an export: the manifest, and vectors and attributes by id."""
    manifest = json.loads((folder / "manifest.json").read_text())
    vectors, attributes = {}, {}
    for number, part in enumerate(manifest["parts"]):
        place = folder / part["name"]
        assert part["whole"] == (number == 0)
        if manifest["format"] == "npy":
            ids = (place / "ids.txt").read_text().split("\n")[:-1]
            matrix = np.load(place / "embeddings.npy")
            lines = place / "attributes.jsonl"
            rows = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        else:
            table = parquet.read_table(place / "items.parquet")
            ids, matrix = table["id"].to_pylist(), np.array(table["embedding"].to_pylist(), np.float32)
            rows = table.drop_columns(["id", "embedding"]).to_pylist()
        assert (len(ids), matrix.dtype) == (part["rows"], np.float32)
        vectors |= dict(zip(ids, matrix.reshape(len(ids), manifest["width"]), strict=True))
        attributes |= dict(zip(ids, rows, strict=bool(rows)))
        for item in (place / "removed.txt").read_text().splitlines() if part["removed"] else []:
            del vectors[item]
    assert len(vectors) == manifest["items"]
    return manifest, vectors, attributes


def order(vectors, item):
    """The ids of the ten items nearest to an item, nearest first, and their squared distances."""
    ids = list(vectors)
    matrix = np.array([vectors[name] for name in ids], np.float64)
    distances = ((matrix - vectors[item]) ** 2).sum(axis=1)
    distances[ids.index(item)] = np.inf
    nearest = np.argsort(distances, kind="stable")[:10]
    return [ids[row] for row in nearest], distances[nearest]


def error(shop, vectors, version):
    """How far an export's distances are at most from those of a version, as a share of the items' spread."""
    exact = shop.metrics[version].embed(shop.catalogue.features).astype(np.float64)
    exported = np.array([vectors[name] for name in shop.catalogue.ids], np.float64)
    distances = [np.linalg.norm(entry[:, None] - entry[None], axis=2) for entry in (exact, exported)]
    return np.abs(distances[0] - distances[1]).max() / spread(exact.astype(np.float32))
