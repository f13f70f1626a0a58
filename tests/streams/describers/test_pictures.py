"""Pictures that somebody else made are opened, or refused with the reason."""

from __future__ import annotations

import io
import os

import numpy as np
import pytest
from PIL import Image

from omdml.streams.describers.describer import Describer, DescriberError, PictureDescriber
from omdml.streams.describers.looks import LOOKS
from omdml.streams.describers.pictures import (
    MAX_SENT_BYTES,
    MAX_SENT_PIXELS,
    WORKING_SIDE,
    PictureError,
    decoded,
    encoded,
    open_picture,
    within,
)
from omdml.streams.describers.pool import describe_file
from tests.support.catalogues.products import drawn, png_that_says

DESCRIBER = PictureDescriber(list(LOOKS), None)


def file_of(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_each_kind_of_picture_is_opened(kind):
    image = open_picture(file_of(Image.new("RGB", (700, 300), (200, 30, 30)), kind))
    assert image.mode == "RGB"
    assert max(image.size) <= WORKING_SIDE
    assert np.asarray(image).reshape(-1, 3).mean(axis=0) == pytest.approx([200, 30, 30], abs=6)


def test_what_is_transparent_is_white_and_a_turned_photograph_is_upright():
    assert open_picture(file_of(Image.new("RGBA", (9, 9), (255, 0, 0, 0)), "PNG")).getpixel((4, 4)) == (255, 255, 255)
    exif = Image.Exif()
    exif[0x0112] = 6
    assert open_picture(file_of(Image.new("RGB", (40, 20)), "JPEG", exif=exif)).size == (20, 40)


def test_a_decompression_bomb_is_refused_before_it_is_decoded():
    for width, height in ((65_000, 65_000), (8_001, 8_000)):
        with pytest.raises(PictureError, match=r"pixels"):
            open_picture(png_that_says(width, height))


def test_sent_pictures_are_bounded_in_bytes_and_pixels():
    describer = Describer(DESCRIBER, {})
    with pytest.raises(DescriberError, match=r"expected at most 16,000,000 in all") as caught:
        describer.picture(png_that_says(MAX_SENT_PIXELS // 1000 + 1, 1000))
    assert caught.value.reason == "bad_picture"
    with pytest.raises(DescriberError, match=r"bytes, expected at most 6,291,456: send a smaller one") as caught:
        describer.picture(bytes(MAX_SENT_BYTES + 1))
    assert caught.value.reason == "oversize"


@pytest.mark.parametrize("cut", [0, 1, 30, 200, 1000])
def test_a_damaged_picture_is_refused_and_nothing_else_is_raised(cut):
    data = drawn()[0][1]
    with pytest.raises(PictureError, match="damaged"):
        open_picture(data[:cut])


def test_no_other_decoder_is_used():
    for kind in ("BMP", "TIFF", "PPM", "ICO"):
        with pytest.raises(PictureError, match="not a JPEG, PNG, WebP or GIF"):
            open_picture(file_of(Image.new("RGB", (16, 16)), kind))


def test_pipes_devices_and_huge_files_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "device.png").symlink_to("/dev/zero")
    with (tmp_path / "huge.png").open("wb") as file:
        file.truncate(1 << 40)
    assert "a named pipe" in describe_file(DESCRIBER, tmp_path / "pipe.png")
    assert "a device" in describe_file(DESCRIBER, tmp_path / "device.png")
    assert "expected at most 67,108,864" in describe_file(DESCRIBER, tmp_path / "huge.png")
    assert describe_file(DESCRIBER, tmp_path / "gone.png") == "No such file or directory"


def test_the_same_picture_gives_the_same_numbers_and_thumbnail():
    data = drawn()[0][1]
    first, second = (DESCRIBER.describe(open_picture(data)) for _ in range(2))
    assert {name: vector.size for name, vector in first.vectors.items()} == {"color": 720, "edges": 900, "texture": 140}
    for name, vector in first.vectors.items():
        assert vector.dtype == np.float32
        assert np.isfinite(vector).all()
        np.testing.assert_array_equal(vector, second.vectors[name])
    assert encoded(first.thumbnail) == encoded(second.thumbnail)


def test_each_modality_tells_what_it_is_for():
    """Of the pictures like one, those with its color (edges: shape, texture: pattern) come first more often."""
    products, files = zip(*drawn(), strict=True)
    described = [DESCRIBER.describe(open_picture(data)).vectors for data in files]
    for modality, what in (("color", "color"), ("edges", "shape"), ("texture", "pattern")):
        vectors = np.array([entry[modality] for entry in described])
        distances = ((vectors[:, None] - vectors[None]) ** 2).sum(axis=-1)
        np.fill_diagonal(distances, np.inf)
        labels = np.array([getattr(product, what) for product in products])
        same = (labels[distances.argmin(axis=1)] == labels).mean()
        chance = (labels[:, None] == labels[None]).mean()
        assert same > 2 * chance, (modality, same, chance)


def test_a_thumbnail_shows_the_whole_picture_in_a_white_square():
    square = within(Image.new("RGB", (200, 100), (0, 0, 255)), 64)
    assert square.shape == (64, 64, 3)
    assert square[0, 0].tolist() == [255, 255, 255]
    assert square[32, 0].tolist() == [0, 0, 255]
    assert decoded(encoded(square)).shape == (64, 64, 3)
