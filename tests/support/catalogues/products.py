"""A folder of drawn pictures and a table, such as users have."""

from __future__ import annotations

import atexit
import csv
import io
import shutil
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path

import numpy as np

from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.describers.sources import Sources
from omdml.workers.demo.products import Product, draw_products, picture

COUNT = 24
TEXT = "description"


@cache
def drawn(count: int = COUNT) -> tuple[tuple[Product, bytes], ...]:
    """Products, each with the bytes of a PNG."""
    draw = np.random.default_rng(0)
    products = []
    for product in draw_products(count, seed=0):
        file = io.BytesIO()
        picture(product, draw).save(file, "PNG")
        products.append((product, file.getvalue()))
    return tuple(products)


def write_shop(folder: Path, count: int = COUNT) -> tuple[Path, Sources]:
    """The pictures, and a table ``products.csv`` with words, a modality of numbers and a column that is neither."""
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    with (folder / "products.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", TEXT, "weight_0", "weight_1"])
        for number, (product, data) in enumerate(drawn(count)):
            (pictures / f"{product.id}.png").write_bytes(data)
            rows.writerow([product.id, product.description, number, number % 7])
    return folder / "products.csv", Sources(pictures, [TEXT])


def described_catalogue(folder: Path) -> MappedCatalogue:
    """The pictures and the words alone as a catalogue, which is built once in a process and copied from then on."""
    shutil.copytree(_described(), folder, dirs_exist_ok=True)
    return MappedCatalogue(folder)


@cache
def _described() -> Path:
    """Build the catalogue that is copied. Its folder is removed at the end of this process."""
    place = tempfile.TemporaryDirectory(prefix="omdml-described-")
    atexit.register(place.cleanup)
    _, sources = write_shop(Path(place.name))
    table, target = Path(place.name) / "words.csv", Path(place.name) / "items"
    lines = [f"{product.id},{product.description}" for product, _ in drawn()]
    table.write_text("\n".join([f"id,{TEXT}", *lines]) + "\n")
    build_catalogue(target, [table], sources=sources)
    return target


def png_that_says(width, height):
    """A PNG of a few bytes whose header claims a size."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
