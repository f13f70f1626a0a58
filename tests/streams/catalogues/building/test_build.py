"""Building catalogues: from what, and what is refused."""

import csv
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from pyarrow import parquet

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.tables import table as tables
from tests.support.deep import examples

RANDOM = np.random.default_rng(0)
IDS = [f"sku-{number}" for number in range(10)]
RAW = {"color": RANDOM.normal(size=(10, 3)), "text": RANDOM.normal(size=(10, 12))}

Vectors = Mapping[str, NDArray[Any]]


def _npz(folder: Path, ids: Sequence[str], raw: Vectors) -> list[str | Path]:
    np.savez_compressed(folder / "items.npz", **{"ids": np.array(ids), **raw})  # type: ignore[arg-type]
    return [folder / "items.npz"]


def _csv(folder: Path, ids: Sequence[str], raw: Vectors, name: str = "items.csv") -> list[str | Path]:
    with (folder / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(f"{name}_{place}" for name, array in raw.items() for place in range(array.shape[1]))])
        for row, item_id in enumerate(ids):
            writer.writerow([item_id, *(repr(float(value)) for array in raw.values() for value in array[row])])
    return [folder / name]


def _parquet(folder: Path, ids: Sequence[str], raw: Vectors) -> list[str | Path]:
    columns = {"id": pyarrow.array(list(ids)), **{name: pyarrow.array(list(array)) for name, array in raw.items()}}
    parquet.write_table(pyarrow.table(columns), folder / "items.parquet", row_group_size=4)
    return [folder / "items.parquet"]


def _two_files(folder: Path, ids: Sequence[str], raw: Vectors) -> list[str | Path]:
    """One modality in each; the second file has the items in another order."""
    first, second = raw
    return [
        *_npz(folder, ids, {first: raw[first]}),
        *_csv(folder, ids[::-1], {second: raw[second][::-1]}),
    ]


# Inputs


@pytest.mark.parametrize("write", [_npz, _csv, _parquet, _two_files])
def test_the_same_items_make_the_same_generation_from_any_kind_of_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., list[str | Path]]
) -> None:
    monkeypatch.setattr(tables, "CHUNK_ROWS", 3)
    expected = build_catalogue(tmp_path / "expected", RAW, ids=IDS)

    built = build_catalogue(tmp_path / "built", write(tmp_path, IDS, RAW))

    assert built.generation == expected.generation
    assert list(built.ids) == IDS
    for name in RAW:
        assert_array_equal(built.features[name], expected.features[name])
    built.verify()


def test_npy_files_name_their_modality_and_take_ids_from_a_text_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a=b.npy", RAW["color"])
    np.save(tmp_path / "text.npy", RAW["text"])
    (tmp_path / "ids").write_text("\n".join(IDS) + "\n")

    built = build_catalogue(
        tmp_path / "built", [f"color={tmp_path}/a=b.npy", tmp_path / "text.npy"], ids=tmp_path / "ids"
    )

    assert built.generation == build_catalogue(tmp_path / "expected", RAW, ids=IDS).generation


def test_an_archive_of_a_benchmark_is_taken_as_it_is(tmp_path: Path) -> None:
    labels = np.arange(10)
    np.savez(tmp_path / "b.npz", X_color=RAW["color"], X_text=np.asfortranarray(RAW["text"]), y=labels, split=labels)

    built = build_catalogue(tmp_path / "built", [tmp_path / "b.npz"])

    assert built.dims == {"color": 3, "text": 12}
    assert list(built.ids) == [str(row) for row in range(10)]


def test_columns_are_chosen_by_name_if_prefixes_do_not_tell(tmp_path: Path) -> None:
    (tmp_path / "i.csv").write_text("sku,price,weight,note\n1,2.5,1,x\n2,5,3,y\n")

    built = build_catalogue(
        tmp_path / "built", [tmp_path / "i.csv"], id_column="sku", columns={"size": ["weight", "price"]}
    )

    assert_array_equal(built.features["size"], [[0, 0], [1, 1]])


def test_parquet_mixes_lists_and_scalars(tmp_path: Path) -> None:
    table = pyarrow.table(
        {
            "id": [7, 8],
            "clip": pyarrow.array([[1.0, 2.0], [3.0, 4.0]], pyarrow.list_(pyarrow.float32(), 2)),
            "color_2": [1.5, 2.5],
            "color_1": [1, 2],
            "note": ["x", "y"],
        }
    )
    parquet.write_table(table, tmp_path / "i.parquet")

    built = build_catalogue(tmp_path / "built", [tmp_path / "i.parquet"], scaling="none")

    assert list(built.ids) == ["7", "8"]
    assert_array_equal(built.features["clip"], [[1, 2], [3, 4]])
    assert_array_equal(built.features["color"], [[1, 1.5], [2, 2.5]])


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = _parquet(tmp_path, IDS, RAW)
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(CatalogueError, match=r"omdml\[parquet\]"):
        build_catalogue(tmp_path / "built", inputs)


# What is refused


@pytest.mark.parametrize(
    ("raw", "options", "expected"),
    [
        ({"v": [[1.0], [2.0]]}, {"ids": ["a", "a"]}, "id 'a' is there twice"),
        ({"v": [[1.0], [2.0]]}, {"ids": ["a", "b\nc"]}, r"id 'b\\nc' holds a line break"),
        ({"v": [[1.0], [2.0]]}, {"ids": ["a", "b\0c"]}, r"id 'b\\x00c' holds a NUL"),
        ({"v": [[1.0], [2.0]]}, {"ids": ["a", ""]}, "1 of 2 rows has no id, the first is row 2"),
        ({"v": [[1.0], [2.0]]}, {"ids": ["a", "\ud800"]}, "cannot be written as UTF-8"),
        ({"v": [[1.0], [2.0]]}, {"ids": ["a"]}, r"different numbers of rows \(v 2, ids 1\)"),
        ({"v": [[1.0], [2.0]], "w": [[1.0]]}, {}, r"different numbers of rows \(v 2, w 1\)"),
        ({"v": [[1.0, np.nan]]}, {"ids": ["a"]}, "item 'a', modality 'v', column 1 is nan"),
        ({"v": [[1.0, -np.inf]]}, {"ids": ["a"]}, "item 'a', modality 'v', column 1 is -inf"),
        ({"v": [[1e39], [0.0]]}, {"scaling": "none"}, "item '0', modality 'v', column 0 is 1e.39, which float32"),
        ({"v": [1.0, 2.0]}, {}, r"'v' has shape \(2,\), expected a row for each item and a column for"),
        ({"v": [["x"], ["y"]]}, {}, "modality 'v' is <U1 .*, expected numbers"),
        ({"v": np.empty((2, 0))}, {}, r"modality 'v' is float64 \(2, 0\), expected numbers"),
        ({"v": np.empty((0, 2))}, {}, "no items"),
        ({"../v": [[1.0]]}, {}, "modality '../v': expected letters"),
        ({}, {}, "nothing to build from"),
        ([], {}, "nothing to build from"),
        ({"v": [[1.0]]}, {"scaling": "zscore"}, "scaling 'zscore', expected one of minmax, unit, none"),
        ({"v": [[1.0]]}, {"scaling": {"w": "unit"}}, "scaling names modality 'w', the inputs have v"),
        ({"v": [[1.0]]}, {"columns": {"v": ["x"]}}, "columns are given, but no input"),
        (["items.txt"], {}, "unknown kind '.txt'"),
        (["/"], {}, "/ is a folder, expected a file .*: name the catalogue's folder first, then the files"),
        (["nothing.npz"], {}, "nothing.npz: cannot be read"),
        (
            {"v": [[1.0]]},
            {"target": "s3://bucket/shop"},
            "s3://bucket/shop: a catalogue is made in a folder, or in Redis",
        ),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing(
    tmp_path: Path, raw: Any, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(CatalogueError, match=expected):
        build_catalogue(**{"target": tmp_path / "built", "inputs": raw, **options})

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty, expected a line with the names"),
        ("id;name\na;b\n", "has no comma, but ';'. Save the file again with commas between the columns"),
        ("id,v.0\na,1\nb,2\na,3\n", r"id 'a' is there twice, in rows 1 and 3 \(a header is not counted\)"),
        ("id,v.0\n", "no items"),
        (
            "id,name\na,b\n",
            r"no modality: expected columns color\.0, .* or .*; it has id, name\. .*--text name\. .*same ids beside",
        ),
        ("sku,v.0\na,1\n", "0 columns named 'id', expected one; it has sku, v.0: name the .*--id-column sku$"),
        ("sku,kind,v.0\na,cup,1\n", "it has sku, kind, v.0: name the .*--id-column sku$"),
        ("7,5.9256e-01,-1\n8,2e3,0\n", r"line looks like numbers \(7, 5\.9256e-01, -1\): .* header line"),
        ("id,v.0\na,1\nb,\n", "item 'b', column 'v.0' is '', expected a number"),
        ("id,v.0\na,1\nb,1,2\n", "line 3 has 3 fields, the header has 2: put a text that has a comma in double quotes"),
        ("id,v.0\na,nan\n", "item 'a', modality 'v', column 0 is nan"),
        ("id,v.0,v.2\na,1,2\n", "has 2 columns, but none with number 1: number them without a gap"),
        ("id,v.0,v_0\na,1,2\n", "'v.0' and 'v_0' are the same number"),
        ('id,v.0\n"a\nb",1\n', "holds a line break"),
    ],
)
def test_bad_csv_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "i.csv").write_text(text)

    with pytest.raises(CatalogueError, match=expected):
        build_catalogue(tmp_path / "built", [tmp_path / "i.csv"])


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (
            {"id": ["a", "b"], "v": [[1.0], [1.0, 2.0]]},
            "item 'b', column 'v' has 2 numbers, expected 1 as in other items",
        ),
        ({"id": ["a", "b"], "v": [[1.0], None]}, "item 'b', column 'v' has no numbers, expected 1 as in other items"),
        ({"id": ["a", "b"], "v": [[1.0], [None]]}, "item 'b', modality 'v', column 0 is nan"),
        ({"id": ["a", None], "v": [[1.0], [2.0]]}, "column 'id' is string with 1 nulls"),
        ({"id": [1.0, 2.0], "v": [[1.0], [2.0]]}, "column 'id' is double"),
    ],
)
def test_bad_parquet_is_refused(tmp_path: Path, columns: dict[str, Any], expected: str) -> None:
    parquet.write_table(pyarrow.table(columns), tmp_path / "i.parquet")

    with pytest.raises(CatalogueError, match=expected):
        build_catalogue(tmp_path / "built", [tmp_path / "i.parquet"])


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ({"text": RAW["text"][:8]}, "2 of 10 items have no row, the first is 'sku-8'"),
        ({"color": RAW["color"]}, "modality 'color' is in another input already: leave it out of one of them"),
    ],
)
def test_every_input_holds_every_item_and_no_modality_twice(tmp_path: Path, second: Vectors, expected: str) -> None:
    ids = IDS[: len(next(iter(second.values())))]
    inputs = [*_npz(tmp_path, IDS, {"color": RAW["color"]}), *_csv(tmp_path, ids, second)]

    with pytest.raises(CatalogueError, match=expected):
        build_catalogue(tmp_path / "built", inputs)


def test_an_item_that_only_a_later_input_holds_is_refused(tmp_path: Path) -> None:
    inputs = [
        *_npz(tmp_path, IDS[:9], {"color": RAW["color"][:9]}),
        *_csv(tmp_path, IDS, {"text": RAW["text"]}),
    ]

    with pytest.raises(CatalogueError, match=r"items\.csv: 1 of 10 rows has an id that is missing in .*, .* 'sku-9'"):
        build_catalogue(tmp_path / "built", inputs)


@pytest.mark.parametrize("order", [1, -1])
def test_row_numbers_joined_with_ids_of_another_input_are_named_as_such(tmp_path: Path, order: int) -> None:
    np.savez(tmp_path / "plain.npz", color=RAW["color"])
    inputs = [tmp_path / "plain.npz", *_csv(tmp_path, IDS, {"text": RAW["text"]})][::order]

    with pytest.raises(CatalogueError, match=r"plain\.npz has no ids.*array `ids`.*--ids"):
        build_catalogue(tmp_path / "built", inputs)

    (tmp_path / "ids").write_text("\n".join(IDS) + "\n")
    assert len(build_catalogue(tmp_path / "built", inputs, ids=tmp_path / "ids").ids) == 10


@pytest.mark.parametrize("held", [{"ids": np.array(["a", "b"])}, {"y": np.arange(2), "ids": np.array(["a", "b"])}, {}])
def test_an_archive_without_vectors_is_refused(tmp_path: Path, held: dict[str, Any]) -> None:
    np.savez(tmp_path / "idsonly.npz", **held)

    with pytest.raises(CatalogueError, match=r"idsonly\.npz: no modality: expected an array"):
        build_catalogue(tmp_path / "built", [tmp_path / "idsonly.npz"])


def test_a_table_without_vectors_is_refused(tmp_path: Path) -> None:
    parquet.write_table(pyarrow.table({"id": ["a"], "note": ["x"]}), tmp_path / "i.parquet")

    with pytest.raises(CatalogueError, match=r"no modality: expected a column of lists, or .*; it has id, note"):
        build_catalogue(tmp_path / "built", [tmp_path / "i.parquet"])


@pytest.mark.parametrize("mapped", [False, True])
def test_progress_counts_items_however_many_inputs_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    shares: list[float] = []

    @contextmanager
    def bar(what: str, total: int | None) -> Iterator[Callable[[float], None]]:
        assert total == 10
        yield shares.append

    monkeypatch.setattr("omdml.streams.catalogues.building.build.progress", bar)
    build_catalogue(tmp_path / "built", _two_files(tmp_path, IDS, RAW), mapped=mapped)

    assert sum(shares) == pytest.approx(10)


def test_a_cut_archive_is_refused(tmp_path: Path) -> None:
    (path,) = _npz(tmp_path, IDS, RAW)
    os.truncate(path, os.path.getsize(path) // 2)

    with pytest.raises(CatalogueError, match=r"items\.npz: cannot be read"):
        build_catalogue(tmp_path / "built", [path])


# Properties

ROWS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 6), st.integers(1, 4)),
    elements=st.floats(-1e30, 1e30, allow_nan=False).map(lambda value: value if abs(value) > 1e-30 else 0.0),
)


@settings(max_examples=examples(40), deadline=None)
@given(raw=ROWS, scaling=st.sampled_from(["minmax", "unit", "none"]))
def test_scaled_values_keep_their_range_and_what_was_built_is_what_scale_gives(
    tmp_path_factory: pytest.TempPathFactory, raw: NDArray[np.float64], scaling: str
) -> None:
    built = build_catalogue(tmp_path_factory.mktemp("p") / "c", {"v": raw}, scaling=scaling)
    matrix = built.features["v"]

    assert_array_equal(built.scale({"v": raw})["v"], matrix)
    if scaling == "minmax":
        assert matrix.min() >= 0
        assert matrix.max() <= 1
    if scaling == "unit":
        norms = np.linalg.norm(matrix.astype(np.float64), axis=1)
        np.testing.assert_allclose(norms, np.any(raw, axis=1), rtol=1e-6)


@settings(max_examples=examples(40), deadline=None)
@given(raw=ROWS, scaling=st.sampled_from(["minmax", "unit", "none"]))
def test_coordinates_of_any_items_are_finite_and_what_scale_gives(
    tmp_path_factory: pytest.TempPathFactory, raw: NDArray[np.float64], scaling: str
) -> None:
    built = build_catalogue(tmp_path_factory.mktemp("p") / "c", {"v": raw}, scaling=scaling, mapped=True)
    view = built.in_coordinates("mapped")
    (coordinates,), (again,) = view.features.values(), view.scale({"v": raw}).values()

    assert coordinates.shape[0] == len(raw)
    assert 1 <= coordinates.shape[1] <= max(1, len(raw) - 1)
    np.testing.assert_allclose(again, coordinates, atol=1e-5)
    # two blocks of unit variance, or of none
    assert coordinates.astype(float).var(axis=0).sum() <= 2 + 1e-5
