"""`omdml catalogue build` with a target in a real Redis or Valkey."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from numpy.testing import assert_array_equal

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.opening import open_catalogue
from omdml.workers.commands.catalogue import build

RANDOM = np.random.default_rng(0)
RAW = {"color": RANDOM.normal(size=(30, 3)), "text": RANDOM.normal(size=(30, 12))}
IDS = [f"i{row}" for row in range(30)]


@pytest.fixture
def items(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first 25 items in a file; the working folder is an empty one."""
    monkeypatch.chdir(tmp_path)
    return rows("items.npz", 0, 25)


def rows(name: str, start: int, stop: int, seed: int = 0) -> Path:
    """Some of the items in a file."""
    raw = {modality: matrix[start:stop] + seed for modality, matrix in RAW.items()}
    np.savez(name, ids=np.array(IDS[start:stop]), **raw)  # type: ignore[arg-type]
    return Path(name)


def run(*arguments: object) -> Result:
    """Run a command without the group around it, which makes a sentence of an error and sets up the process's log."""
    return CliRunner().invoke(build, [*map(str, arguments)])


def test_a_catalogue_is_built_in_redis_and_nothing_is_left_on_the_disk(items: Path, redis_url: str) -> None:
    target = f"{redis_url}#shop"
    assert f"{target}: 25 items, color 3, text 12, 24 mapped coordinates, generation " in run(target, items).output
    assert list(Path().iterdir()) == [items]

    expected, opened = build_catalogue("folder", [items], mapped=True), open_catalogue(target)

    assert (opened.generation, list(opened.ids)) == (expected.generation, IDS[:25])
    for name, matrix in expected.features.items():
        assert_array_equal(opened.features[name], matrix)
    # The same items make the same generation again.
    assert run(target, items).exit_code == 0


def test_items_added_in_redis_get_coordinates_if_their_catalogue_has_a_map(items: Path, redis_url: str) -> None:
    target, plain = f"{redis_url}#shop", f"{redis_url}#plain"
    run(target, items)
    run(plain, items, "--no-map")
    built = open_catalogue(target)
    assert "27 items" in run(target, rows("more.npz", 25, 27), "--add").output

    added = open_catalogue(target).in_coordinates("mapped")
    ((name, matrix),) = added.features.items()
    more = {modality: matrix[25:27] for modality, matrix in RAW.items()}
    assert added.generation == built.generation
    assert_array_equal(matrix[:25], built.in_coordinates("mapped").features[name])
    np.testing.assert_allclose(matrix[25:], added.scale(more)[name], atol=1e-6)
    assert run(plain, items).exit_code == 0
    assert open_catalogue(plain).map is None
    new = rows("new.npz", 0, 25, seed=1)
    assert "got 2 added items after its build" in run(target, new, "--replace").output
    assert open_catalogue(target).generation == built.generation
    assert run(target, new, "--replace", "--yes").exit_code == 0
    assert open_catalogue(target).generation != built.generation
    assert open_catalogue(target).in_coordinates("mapped").dims == added.dims


def test_a_password_in_the_target_s_address_is_not_shown(items: Path, redis_url: str) -> None:
    # This user is let in with any password.
    target = redis_url.replace("://", "://default:hush-hush@") + "#shop"
    built, refused = run(target, items), run(target, rows("other.npz", 0, 25, seed=1))
    assert "#shop: 25 items" in built.output
    assert "#shop holds generation" in str(refused.exception)
    assert "hush" not in built.output + str(refused.exception)


def test_items_and_sets_are_added_to_the_generation_in_redis_as_in_a_folder(items: Path, redis_url: str) -> None:
    more = rows("more.npz", 25, 30)
    Path("sets.csv").write_text("set,item\nphoto,i1\nphoto,i29\n")
    for target in (f"{redis_url}#shop", "folder"):
        assert run(target, items).exit_code == 0
        opened = open_catalogue(target)
        added = run(target, more, "--add", "--sets", "sets.csv")
        assert "30 items, 1 set," in added.output, added.output
        assert opened.refresh() == 5
        assert list(opened.sets["photo"]) == [1, 29]
        assert "in the catalogue already" in str(run(target, more, "--add").exception)

    in_redis, in_folder = open_catalogue(f"{redis_url}#shop"), open_catalogue("folder")
    assert (in_redis.generation, list(in_redis.ids)) == (in_folder.generation, IDS)
    for name, matrix in in_folder.features.items():
        assert_array_equal(in_redis.features[name], matrix)


def test_another_generation_takes_the_place_in_redis_only_if_asked_to(items: Path, redis_url: str) -> None:
    target, other = f"{redis_url}#shop", rows("other.npz", 0, 25, seed=1)
    assert run(target, items).exit_code == 0
    before = open_catalogue(target)
    assert "Replace it (--replace)" in str(run(target, other).exception)
    assert open_catalogue(target).generation == before.generation
    assert run(target, other, "--replace").exit_code == 0
    assert open_catalogue(target).generation != before.generation
    # A process that has the old catalogue open goes on with it.
    assert before.refresh() == 0


@pytest.mark.parametrize(
    ("target", "options", "expected"),
    [
        ("s3://bucket/shop", [], "a catalogue is made in a folder, or in Redis"),
        ("redis://127.0.0.1:1#shop", [], "see that the server is up"),
        ("redis://127.0.0.1:1", [], "expected a name as in redis://host:6379/0#shop"),
        ("folder", ["--add"], "make one with `omdml catalogue build`"),
        ("folder", ["--add", "--replace"], "--add keeps the catalogue's generation"),
    ],
)
def test_a_target_that_cannot_be_is_refused_and_nothing_is_made(
    items: Path, target: str, options: list[str], expected: str
) -> None:
    refused = run(target, items, *options)
    assert refused.exit_code
    assert expected in f"{refused.exception} {refused.output}"
    assert list(Path().iterdir()) == [items]
