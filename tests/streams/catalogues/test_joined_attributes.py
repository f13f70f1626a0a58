"""A table without vectors brings attributes of items whose vectors come from another file, joined by id."""

from __future__ import annotations

import numpy as np
import pyarrow
import pytest
from click.testing import CliRunner
from numpy.testing import assert_array_equal
from pyarrow import parquet

from omdml.streams.catalogues.opening import open_catalogue
from omdml.workers.cli import main

IDS = ["a", "b", "c", "d"]
COLOR = np.arange(8.0).reshape(4, 2)
KEPT = {"d": {"price": 4, "brand": "zeta"}, "b": {"price": 2}, "a": {"price": 1, "brand": "acme"}, "c": {"brand": "x"}}


def csv(path, rows):
    cells = [f"{item},{values.get('price', '')},{values.get('brand', '')}\n" for item, values in rows]
    path.with_suffix(".csv").write_text("id,price,brand\n" + "".join(cells))
    return path.with_suffix(".csv")


def columns(path, rows):
    names = ("price", "brand")
    table = {"id": [item for item, _ in rows]} | {name: [values.get(name) for _, values in rows] for name in names}
    parquet.write_table(pyarrow.table(table), path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def build(folder, *inputs, options=()):
    return CliRunner().invoke(main, ["catalogue", "build", str(folder / "items"), *map(str, inputs), *options])


@pytest.fixture
def vectors(tmp_path):
    np.savez(tmp_path / "vectors.npz", ids=np.array(IDS), color=COLOR)
    return tmp_path / "vectors.npz"


@pytest.mark.parametrize("write", [csv, columns])
@pytest.mark.parametrize("table_first", [False, True])
def test_attributes_of_a_table_are_joined_with_vectors_by_id_in_any_order(tmp_path, vectors, write, table_first):
    table = write(tmp_path / "products", list(KEPT.items()))
    built = build(tmp_path, *([table, vectors] if table_first else [vectors, table]), options=["--scaling", "none"])
    assert built.exit_code == 0, built.output
    catalogue = open_catalogue(str(tmp_path / "items"))
    assert dict(catalogue.attributes) == KEPT
    # The first input gives the order.
    assert list(catalogue.ids) == (list(KEPT) if table_first else IDS)
    assert_array_equal(catalogue.features["color"], COLOR[[IDS.index(item) for item in catalogue.ids]])


def test_attributes_are_joined_with_npy_files_and_with_added_items(tmp_path):
    np.save(tmp_path / "color.npy", COLOR)
    (tmp_path / "ids.txt").write_text("\n".join(IDS) + "\n")
    options = ["--ids", str(tmp_path / "ids.txt"), "--attributes", "price"]
    built = build(tmp_path, tmp_path / "color.npy", csv(tmp_path / "products", list(KEPT.items())), options=options)
    assert built.exit_code == 0, built.output
    np.savez(tmp_path / "more.npz", ids=np.array(["e"]), color=COLOR[:1])
    more = csv(tmp_path / "more", [("e", {"price": 5})])
    added = build(tmp_path, tmp_path / "more.npz", more, options=["--add"])
    assert added.exit_code == 0, added.output
    attributes = open_catalogue(str(tmp_path / "items")).attributes
    assert attributes == {"a": {"price": 1}, "b": {"price": 2}, "d": {"price": 4}, "c": {}, "e": {"price": 5}}


@pytest.mark.parametrize("write", [csv, columns])
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["a", "d"], "2 of 4 items have no row, the first is 'b': every item needs a row of attributes, whose cells"),
        ([*IDS, "x", "y"], "2 of 6 rows have an id that is missing in DIR/vectors.npz, the first is 'x': every item"),
        (["A", "B", "c", "d"], "2 of 4 rows have an id that is missing in DIR/vectors.npz, the first is 'A'; 2 of 4"),
        ([*IDS, "b", "b", "a"], "id 'b' is there twice, in rows 2 and 5 (a header is not counted), and 2 more of 7"),
        ([*IDS[:3], "", ""], "2 of 5 rows have no id, the first is row 4 (a header is not counted)"),
    ],
    ids=["missing rows", "unknown ids", "both", "repeated ids", "empty ids"],
)
def test_ids_that_do_not_fit_are_counted_and_leave_no_catalogue(tmp_path, vectors, write, ids, expected):
    refused = build(tmp_path, vectors, write(tmp_path / "products", [(item, {"price": 1}) for item in ids]))
    assert refused.exit_code == 2
    assert expected.replace("DIR", str(tmp_path)) in refused.output
    assert not (tmp_path / "items").exists()


def test_row_numbers_beside_ids_of_a_table_are_named_as_the_cause(tmp_path):
    np.savez(tmp_path / "plain.npz", color=COLOR)
    refused = build(tmp_path, tmp_path / "plain.npz", csv(tmp_path / "products", list(KEPT.items())))
    assert "plain.npz has no ids, so its row numbers are the ids: give it an array `ids`" in refused.output


def test_a_table_without_vectors_alone_says_to_bring_vectors_beside_it(tmp_path):
    refused = build(tmp_path, csv(tmp_path / "products", list(KEPT.items())))
    assert "products.csv: no modality: expected columns color.0" in refused.output
    assert "name a file with the vectors of the same ids beside this one" in refused.output
