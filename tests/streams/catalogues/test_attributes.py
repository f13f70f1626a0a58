"""Columns of a table that are no vectors: attributes of the items."""

from __future__ import annotations

import datetime
import decimal

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.destinations import add_at, build_at
from omdml.streams.catalogues.opening import open_catalogue
from omdml.streams.catalogues.tables.attributes import CellKind
from omdml.workers.cli import main
from tests.support.deep import examples

CSV = """id,color.0,color.1,price,sale,brand,tags,since,number,empty
17,0.1,0.2,9.5,true,acme,"[""red"",""blue""]",2026-11-23,007,
4,0.3,0.9,30,False,,[],2026-11-24T18:30:00+01:00,12,
9,0.7,0.4,,,zeta,,,3,
"""
KEPT = {
    "17": {
        "price": 9.5, "sale": True, "brand": "acme", "tags": ["red", "blue"], "since": "2026-11-23", "number": "007",
    },
    "4": {"price": 30, "sale": False, "tags": [], "since": "2026-11-24T18:30:00+01:00", "number": "12"},
    "9": {"brand": "zeta", "number": "3"},
}  # fmt: skip


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "items.csv"
    path.write_text(CSV)
    return path


def attributes_in(folder):
    return dict(open_catalogue(str(folder)).attributes)


def test_other_columns_of_csv_become_attributes(tmp_path, table):
    ran = CliRunner().invoke(main, ["catalogue", "build", str(tmp_path / "items"), str(table)])
    assert ran.exit_code == 0, ran.output
    assert attributes_in(tmp_path / "items") == KEPT


def test_only_the_columns_that_are_named_are_kept(tmp_path, table):
    options = ["--attributes", "price,brand"]
    assert CliRunner().invoke(main, ["catalogue", "build", str(tmp_path / "a"), str(table), *options]).exit_code == 0
    assert attributes_in(tmp_path / "a") == {
        "17": {"price": 9.5, "brand": "acme"},
        "4": {"price": 30},
        "9": {"brand": "zeta"},
    }
    options = ["--attributes", "none"]
    assert CliRunner().invoke(main, ["catalogue", "build", str(tmp_path / "b"), str(table), *options]).exit_code == 0
    assert attributes_in(tmp_path / "b") == {}


def test_building_again_brings_new_attributes_and_leaves_deleted_items_deleted(tmp_path, table):
    target = str(tmp_path / "items")
    first = build_at(target, [table]).generation
    assert CliRunner().invoke(main, ["catalogue", "delete", target, "4"]).exit_code == 0
    table.write_text(CSV.replace("9.5", "8"))
    assert build_at(target, [table]).generation == first
    assert attributes_in(target) == {"17": {**KEPT["17"], "price": 8}, "9": KEPT["9"]}


def test_added_items_bring_attributes_too(tmp_path, table):
    target = str(tmp_path / "items")
    build_at(target, [table])
    more = tmp_path / "more.csv"
    more.write_text("id,color.0,color.1,price,brand\n5,0.1,0.5,3,nova\n")
    add_at(target, [more])
    assert attributes_in(target) == {**KEPT, "5": {"price": 3, "brand": "nova"}}


def test_tables_are_joined_by_id(tmp_path, table):
    other = tmp_path / "shapes.csv"
    other.write_text("id,shape.0,stock\n4,0.5,7\n17,0.1,0\n9,0.3,2\n")
    build_at(str(tmp_path / "items"), [table, other])
    stock = {"17": 0, "4": 7, "9": 2}
    assert attributes_in(tmp_path / "items") == {item: {**KEPT[item], "stock": count} for item, count in stock.items()}


def test_parquet_brings_its_own_types(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "id": ["a", "b"],
        "color": [[0.1, 0.2], [0.3, 0.4]],
        "price": [decimal.Decimal("9.50"), None],
        "stock": [3, 0],
        "sale": [True, None],
        "tags": [["red", "blue"], None],
        "since": [datetime.date(2026, 11, 23), None],
        "seen": [datetime.datetime(2026, 11, 23, 18, 30, tzinfo=datetime.UTC), None],
        "weight": [float("nan"), 1.5],
    }
    path = tmp_path / "items.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    build_at(str(tmp_path / "items"), [path])
    first = {"price": 9.5, "stock": 3, "sale": True, "tags": ["red", "blue"], "since": "2026-11-23"}
    first["seen"] = "2026-11-23T18:30:00+00:00"
    assert attributes_in(tmp_path / "items") == {"a": first, "b": {"stock": 0, "weight": 1.5}}
    assert dict(open_catalogue(str(tmp_path / "items")).dims) == {"color": 2}


@pytest.mark.parametrize(
    ("header", "wanted", "message"),
    [
        ("id,color.0,price", ["prize"], "0 columns named 'prize', expected one; it has price: did you mean 'price'?"),
        ("id,color.0,price", ["color.0"], "0 columns named 'color.0'"),
        ("id,color.0,any", ["any"], "column 'any': an attribute cannot have this name"),
        ("id,color.0," + ",".join(f"c{n}x" for n in range(257)), None, "257 columns are not vectors, but at most 256"),
    ],
)
def test_columns_that_cannot_be_attributes_are_refused_before_anything_is_built(tmp_path, header, wanted, message):
    path = tmp_path / "items.csv"
    path.write_text(f"{header}\n{','.join('1' for _ in header.split(','))}\n")
    with pytest.raises(CatalogueError, match=message):
        build_at(str(tmp_path / "items"), [path], attributes=wanted)
    assert not (tmp_path / "items").exists()


def test_columns_named_like_words_of_filters_are_left_out_unless_asked_for(tmp_path):
    # pandas writes its row numbers into a column without a name.
    (tmp_path / "items.csv").write_text(",id,color.0,any,price\n0,a,1,2,3\n1,b,0,2,4\n")
    build_at(str(tmp_path / "items"), [tmp_path / "items.csv"])
    assert attributes_in(tmp_path / "items") == {"a": {"price": 3}, "b": {"price": 4}}


def test_arrays_have_no_attributes(tmp_path):
    np.savez(tmp_path / "items.npz", color=np.eye(3))
    with pytest.raises(CatalogueError, match="attributes are columns of CSV or Parquet"):
        build_at(str(tmp_path / "items"), [tmp_path / "items.npz"], attributes=["price"])
    build_at(str(tmp_path / "items"), [tmp_path / "items.npz"])
    assert attributes_in(tmp_path / "items") == {}


@settings(max_examples=examples(150), deadline=None)
@given(
    st.one_of(
        st.lists(st.one_of(st.just(""), st.integers(-(10**15), 10**15).map(str), st.floats(-1e9, 1e9).map(repr))),
        st.lists(st.sampled_from(["", "true", "FALSE"])),
        st.lists(st.text(max_size=5)),
    )
)
def test_cells_are_read_without_loss(cells):
    kind = CellKind()
    for cell in cells:
        kind.see(cell, "a")
    values = [kind.read(cell) for cell in cells]
    assert len({bool if type(v) is bool else str if type(v) is str else float for v in values if v is not None}) <= 1
    for cell, value in zip(cells, values, strict=True):
        if isinstance(value, bool):
            assert str(value).lower() == cell.lower()
        elif isinstance(value, int | float):
            assert value == float(cell)
        else:
            assert (value or "") == cell or isinstance(value, list)
