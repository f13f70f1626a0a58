"""The folder of a catalogue: replaced, added to, and what a killed process leaves of it."""

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from omdml.errors import CatalogueError
from omdml.streams.catalogues.building import build, writing
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.catalogues.building.writing import locked
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.catalogues.opening import open_catalogue
from tests.support.forks import ended

RANDOM = np.random.default_rng(0)
IDS = [f"sku-{number}" for number in range(10)]
RAW = {"color": RANDOM.normal(size=(10, 3)), "text": RANDOM.normal(size=(10, 12))}

Vectors = Mapping[str, NDArray[Any]]


# Replacing


def test_building_the_same_again_keeps_the_catalogue_and_what_was_added(tmp_path: Path) -> None:
    build_catalogue(tmp_path / "c", RAW, ids=IDS)
    add_items(tmp_path / "c", {name: array[:1] for name, array in RAW.items()}, ids=["added"])

    again = build_catalogue(tmp_path / "c", RAW, ids=IDS)

    assert "added" in again
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_another_generation_is_replaced_only_when_asked(tmp_path: Path) -> None:
    first = build_catalogue(tmp_path / "c", RAW, ids=IDS)

    message = f"holds generation {first.generation}, these inputs make .*, and restart the workers, then the nodes"
    with pytest.raises(CatalogueError, match=message):
        build_catalogue(tmp_path / "c", RAW, ids=IDS, scaling="unit")
    assert open_catalogue(tmp_path / "c").generation == first.generation

    second = build_catalogue(tmp_path / "c", RAW, ids=IDS, scaling="unit", replace=True)
    assert second.generation != first.generation
    assert open_catalogue(tmp_path / "c.previous").generation == first.generation


def test_a_folder_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()

    with pytest.raises(CatalogueError, match="something that is no catalogue"):
        build_catalogue(tmp_path, RAW, ids=IDS, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["holiday.jpg"]


@pytest.mark.parametrize("other", [{"ids": IDS[::-1]}, {"scaling": "none"}, {"scaling": {"text": "unit"}}])
def test_ids_scaling_and_values_make_the_generation(tmp_path: Path, other: dict[str, Any]) -> None:
    first = build_catalogue(tmp_path / "first", RAW, ids=IDS)

    assert build_catalogue(tmp_path / "second", RAW, **{"ids": IDS, **other}).generation != first.generation


# Adding


@pytest.mark.parametrize(
    ("raw", "ids", "expected"),
    [
        ({"color": RAW["color"], "text": RAW["text"]}, IDS, "item 'sku-0' is in the catalogue already"),
        ({"color": RAW["color"][:1]}, ["new"], "have modalities .*'color': 3.*, the catalogue there has .*'text': 12"),
        ({"color": RAW["text"][:1], "text": RAW["text"][:1]}, ["new"], "have modalities .*'color': 12"),
        (
            {"color": np.full((1, 3), np.inf), "text": RAW["text"][:1]},
            ["new"],
            "item 'new', modality 'color', column 0",
        ),
    ],
)
def test_items_that_do_not_fit_are_not_added(tmp_path: Path, raw: Vectors, ids: list[str], expected: str) -> None:
    catalogue = build_catalogue(tmp_path / "c", RAW, ids=IDS)

    with pytest.raises(CatalogueError, match=expected):
        add_items(tmp_path / "c", raw, ids=ids)

    assert catalogue.refresh() == 0
    MappedCatalogue(tmp_path / "c").verify()


def test_a_full_disk_is_reported_before_a_vector_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[object] = []
    monkeypatch.setattr(writing, "_write_table", lambda *arguments: written.append(arguments))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # No file may become larger, as if the disk ended there.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(CatalogueError, match="cannot be written"):
            build_catalogue(tmp_path / "c", {"v": np.ones((1000, 10))})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert written == []
    assert list(tmp_path.iterdir()) == []


def test_two_writers_of_one_catalogue_are_one_too_many(tmp_path: Path) -> None:
    catalogue = build_catalogue(tmp_path / "c", RAW, ids=IDS)

    with locked(catalogue.path), pytest.raises(CatalogueError, match="another process is writing"):
        add_items(tmp_path / "c", {name: array[:1] for name, array in RAW.items()}, ids=["new"])


# Killed


def _die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _write_until(target: Path, step: str, ids: Sequence[str]) -> None:
    """Build a catalogue, or add to it, in a process that dies at this step."""
    rename = Path.rename

    def rename_aside(path: Path, to: Path) -> None:
        rename(path, to)
        if str(to).endswith(".previous"):
            _die()

    dying = {
        "matrices": (writing, "_write_lines", _die),
        "coordinates": (build, "append_coordinates", _die),
        "manifest": (build, "write_manifest", _die),
        "add": (build, "write_manifest", _die),
        "aside": (Path, "rename", rename_aside),
    }
    setattr(*dying[step])
    raw = {"v": np.full((len(ids), 2), 7.0)}
    if step == "add":
        add_items(target, raw, ids=ids)
    else:
        build_catalogue(target, raw, ids=ids, scaling="none", replace=True, mapped=step == "coordinates")


def _killed(target: Path, step: str, ids: Sequence[str]) -> None:
    assert ended(_write_until, target, step, ids) == -signal.SIGKILL


@pytest.mark.parametrize("step", ["matrices", "coordinates", "manifest"])
def test_a_killed_build_leaves_what_was_there_and_the_next_one_succeeds(tmp_path: Path, step: str) -> None:
    target = tmp_path / "c"
    _killed(target, step, ["a", "b"])
    with pytest.raises(CatalogueError, match="no catalogue"):
        open_catalogue(target)

    before = build_catalogue(target, {"v": [[1.0, 2.0]]})
    _killed(target, step, ["a", "b"])
    assert open_catalogue(target).generation == before.generation

    build_catalogue(target, {"v": [[1.0, 3.0]]}, scaling="none", replace=True).verify()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "c.previous"]


def test_a_build_killed_while_replacing_says_where_the_catalogue_is(tmp_path: Path) -> None:
    before = build_catalogue(tmp_path / "c", {"v": [[1.0, 2.0]]})
    _killed(tmp_path / "c", "aside", ["a", "b"])

    with pytest.raises(CatalogueError, match=r"rename .*c\.previous back"):
        open_catalogue(tmp_path / "c")
    (tmp_path / "c.previous").rename(tmp_path / "c")
    assert open_catalogue(tmp_path / "c").generation == before.generation


@pytest.mark.parametrize("mapped", [False, True])
def test_items_of_a_killed_adding_are_not_there_and_may_be_added_again(tmp_path: Path, mapped: bool) -> None:
    target = tmp_path / "c"
    build_catalogue(target, {"v": [[1.0, 2.0], [3.0, 4.0]]}, mapped=mapped)
    _killed(target, "add", ["a", "b", "c"])

    assert list(open_catalogue(target).ids) == ["0", "1"]
    added = add_items(target, {"v": [[3.0, 3.0]]}, ids=["a"])
    added.verify()
    assert_array_equal(added.features["v"], [[0, 0], [1, 1], [1, 0.5]])
    assert np.load(target / "v.npy").shape == (3, 2)
    if mapped:
        assert np.load(target / "mapped.npy").shape == (3, 1)


def test_a_catalogue_that_may_not_be_read_needs_a_right_and_no_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("omdml.streams.catalogues.folder.read_regular", refused)
    with pytest.raises(CatalogueError, match=r"\(Permission denied\): give this user the right to read it$"):
        MappedCatalogue(tmp_path)


@pytest.mark.parametrize("path", ["a" * 5000, "/", ""])
def test_a_path_that_can_be_no_catalogue_is_refused_in_a_sentence(path: str) -> None:
    with pytest.raises(CatalogueError, match=r"there is no catalogue that can be read \(.*\): make one with"):
        MappedCatalogue(path)
