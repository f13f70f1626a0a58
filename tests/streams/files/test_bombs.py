"""Files that are small and claim to be huge, and lines without an end, are refused before memory is spent on them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from tests.support.files.catalogue_bombs import REFUSED, Bomb, build


@pytest.mark.parametrize(("bomb", "expected"), REFUSED, ids=[bomb.__name__ for bomb, _ in REFUSED])
def test_a_bomb_is_refused_in_little_memory(bomb: Bomb, expected: str, tmp_path: Path) -> None:
    source = bomb(tmp_path)
    code, output = build(source, tmp_path / "items")
    assert code == 2, output
    assert expected in output
    assert "Traceback" not in output
    assert not (tmp_path / "items").exists()


def test_a_sound_file_is_built_within_the_same_bound(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, v=np.random.default_rng(0).random((20_000, 64), np.float32))
    (tmp_path / "i.npz").write_bytes(buffer.getvalue())
    code, output = build(tmp_path / "i.npz", tmp_path / "items")
    assert code == 0, output
