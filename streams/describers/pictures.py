"""Opens pictures of unknown origin: only known kinds, and only up to a size. Every picture is opened here."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.errors import CatalogueError

# The endings of files that are pictures, and what Pillow calls their kinds. No other decoder is ever used.
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".gif")
FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
# The most bytes of a file, and of a picture that comes over HTTP.
MAX_FILE_BYTES, MAX_SENT_BYTES = 64 << 20, 6 << 20
# The most pixels. A decoded one takes up to four bytes, whatever the file's size.
MAX_FILE_PIXELS, MAX_SENT_PIXELS = 64_000_000, 16_000_000
# A picture whose longer side has more pixels is made smaller before it is described.
WORKING_SIDE = 512
WHITE = (255, 255, 255, 255)
INSTALL = "pip install 'omdml[pictures]'"

Pixels = NDArray[np.uint8]


class PictureError(CatalogueError):
    """Raised if a picture cannot be used. The message says why, but does not name the picture."""

    reason = "bad_picture"


def open_picture(data: bytes, max_pixels: int = MAX_FILE_PIXELS) -> Any:
    """The first frame of a picture as a Pillow image.

    It is upright and RGB, transparent parts are white, and neither side has more than ``WORKING_SIDE`` pixels. Raises
    PictureError if it is damaged, of an unknown kind, or has more than ``max_pixels`` pixels, which its header says
    before anything is decoded.
    """
    Image, ImageOps = _pillow()
    from PIL import UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise PictureError(f"it has {width:,} x {height:,} pixels, expected at most {max_pixels:,} in all")
            # A JPEG is decoded at half, a quarter or an eighth of its size if that is enough.
            image.draft("RGB", (WORKING_SIDE, WORKING_SIDE))
            image = ImageOps.exif_transpose(image)
            image.thumbnail((WORKING_SIDE, WORKING_SIDE), Image.Resampling.BOX, reducing_gap=2.0)
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                image = image.convert("RGBA")
                image = Image.alpha_composite(Image.new("RGBA", image.size, WHITE), image)
            return image.convert("RGB")
    except PictureError:
        raise
    except Image.DecompressionBombError as error:
        raise PictureError(f"it has far more than the {max_pixels:,} pixels that are allowed") from error
    except UnidentifiedImageError:
        # Pillow's own message only names an object in memory.
        raise PictureError("it is not a JPEG, PNG, WebP or GIF, or its beginning is damaged") from None
    # A decoder may raise anything if it is given damaged bytes.
    except Exception as error:
        raise PictureError(f"it is damaged ({error})") from error


def blank() -> Any:
    """A white picture, such as :func:`open_picture` returns."""
    Image, _ = _pillow()
    return Image.new("RGB", (WORKING_SIDE, WORKING_SIDE), WHITE[:3])


def stretched(image: Any, width: int, height: int) -> Pixels:
    """The picture as an array (height, width, 3), whatever its proportions."""
    Image, _ = _pillow()
    larger = image.width >= width and image.height >= height
    return np.asarray(image.resize((width, height), Image.Resampling.BOX if larger else Image.Resampling.BILINEAR))


def within(image: Any, side: int) -> Pixels:
    """The whole picture in the middle of a white square, (side, side, 3)."""
    Image, ImageOps = _pillow()
    small = ImageOps.contain(image, (side, side), Image.Resampling.LANCZOS)
    square = Image.new("RGB", (side, side), WHITE[:3])
    square.paste(small, ((side - small.width) // 2, (side - small.height) // 2))
    return np.asarray(square)


def encoded(pixels: Pixels) -> bytes:
    """An array (height, width, 3) as WebP, the same bytes each time."""
    Image, _ = _pillow()
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "WEBP", quality=80, method=4)
    return file.getvalue()


def decoded(data: bytes) -> Pixels:
    """The pixels (height, width, 3) of a picture that :func:`encoded` made; raises PictureError."""
    Image, _ = _pillow()
    try:
        with Image.open(io.BytesIO(data), formats=("WEBP",)) as image:
            return np.asarray(image.convert("RGB"))
    except Exception as error:
        raise PictureError(f"it is damaged ({error})") from error


def _pillow() -> tuple[Any, Any]:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise CatalogueError(f"pictures need Pillow and scikit-image, which are not installed: {INSTALL}") from error
    return Image, ImageOps
