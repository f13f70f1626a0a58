"""Drawn products, the items of ``omdml demo --pictures``. They differ in shape, color, pattern and size.

Pillow draws the pictures. The words about a product name its shape and color, as a shop's table would. The service gets
only the pictures, the words, and what people click.
"""

from __future__ import annotations

import colorsys
import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from omdml.errors import ConfigurationError
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.describers.sources import Sources

COUNT = 1200
SIDE = 128
# Pictures are drawn this many times larger, so that edges are smooth.
FINE = 2
# Hues in degrees of the color circle.
COLORS = {"red": 2, "orange": 30, "yellow": 50, "green": 125, "teal": 178, "blue": 218, "purple": 275, "pink": 330}
PATTERNS = ("plain", "stripes", "dots", "checks")
SIZES = {"small": 0.62, "medium": 0.8, "large": 0.98}
MATERIALS = ("cotton", "ceramic", "linen", "glass", "leather", "paper")

Point = tuple[float, float]
# Each shape is drawn from polygons, ellipses (given by two corners) and elliptic holes that are cut out of them.
POLYGON, ELLIPSE, CUT = "polygon", "ellipse", "cut"
Part = tuple[str, Sequence[Point]]
SHAPES: Mapping[str, Sequence[Part]] = {
    "shirt": [
        (POLYGON, [(30, 18), (42, 12), (58, 12), (70, 18), (94, 34), (84, 52), (72, 44), (72, 90), (28, 90), (28, 44),
                   (16, 52), (6, 34)]),
        (CUT, [(41, 4), (59, 21)]),
    ],
    "mug": [
        (ELLIPSE, [(60, 28), (94, 74)]), (CUT, [(68, 38), (85, 64)]),
        (POLYGON, [(12, 18), (72, 18), (68, 86), (16, 86)]),
    ],
    "bag": [
        (ELLIPSE, [(28, 4), (72, 60)]), (CUT, [(36, 12), (64, 52)]), (POLYGON, [(12, 34), (88, 34), (94, 92), (6, 92)]),
    ],
    "lamp": [
        (POLYGON, [(34, 10), (66, 10), (88, 54), (12, 54)]), (POLYGON, [(46, 54), (54, 54), (54, 86), (46, 86)]),
        (ELLIPSE, [(26, 80), (74, 94)]),
    ],
    "vase": [
        (ELLIPSE, [(18, 34), (82, 94)]), (POLYGON, [(38, 8), (62, 8), (58, 44), (42, 44)]),
        (ELLIPSE, [(32, 4), (68, 14)]),
    ],
    "hat": [(ELLIPSE, [(24, 14), (76, 92)]), (CUT, [(0, 62), (100, 130)]), (ELLIPSE, [(4, 52), (96, 76)])],
}  # fmt: skip


class Product(NamedTuple):
    """The shape, color, pattern and size of one drawn product."""

    id: str
    shape: str
    color: str
    pattern: str
    size: str
    material: str

    @property
    def description(self) -> str:
        """What a shop would write about it."""
        return f"{self.size} {self.color} {self.shape} made of {self.material}"


def draw_products(count: int = COUNT, seed: int = 0) -> list[Product]:
    """Draw the properties of all products at random. Each is drawn independently, so none predicts another."""
    draw = np.random.default_rng(seed)
    kinds: Sequence[Sequence[str]] = (list(SHAPES), list(COLORS), PATTERNS, list(SIZES), MATERIALS)
    picked = [[kind[place] for place in draw.integers(len(kind), size=count)] for kind in kinds]
    return [
        Product(f"product-{number:04d}", *properties) for number, properties in enumerate(zip(*picked, strict=True))
    ]


class Products(NamedTuple):
    """The products as items of the demo. People care about the property ``cared_for`` and about no other."""

    products: Sequence[Product]
    cared_for: str = "pattern"
    seed: int = 0

    @property
    def name(self) -> str:
        return "products"

    @property
    def first_query(self) -> str:
        """A green mug with stripes, if the seed is 0."""
        return "product-0048"

    @property
    def ids(self) -> list[str]:
        return [product.id for product in self.products]

    @property
    def labels(self) -> list[str]:
        """The property of each product that people care about."""
        return [getattr(product, self.cared_for) for product in self.products]

    def with_sets(self, sets: Mapping[str, Sequence[str]]) -> Products:
        if sets:
            raise ConfigurationError("there are no sets of products: choose another learner, or leave out --pictures")
        return self

    def build(self, target: Path) -> None:
        """Describe pictures and words as ``omdml catalogue build --pictures FOLDER --text description`` does."""
        pictures, table = target.parent / "pictures", target.parent / "products.csv"
        self.write_pictures(pictures)
        self.write_table(table)
        build_catalogue(target, [table], sources=Sources(pictures, ["description"]), mapped=True)

    def write_table(self, path: Path) -> None:
        """Write the id and the description of each product as CSV."""
        with path.open("w", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["id", "description"])
            rows.writerows((product.id, product.description) for product in self.products)

    def write_pictures(self, folder: Path) -> None:
        """Write a file ``ID.png`` for each product, unless the folder exists already."""
        if folder.exists():
            return
        folder.mkdir(parents=True)
        draw = np.random.default_rng(self.seed)
        for product in self.products:
            picture(product, draw).save(folder / f"{product.id}.png", compress_level=1)

    def write_attributes(self, path: Path) -> None:
        """Write the properties of each product as attributes, for filters."""
        with path.open("wb") as file:
            for product in self.products:
                file.write(msgspec.json.encode(product._asdict()) + b"\n")


def picture(product: Product, draw: np.random.Generator) -> Any:
    """Draw the product as a Pillow image. Position, tilt, shade and background differ a little each time."""
    image, image_draw, filters = _pillow()
    side = SIDE * FINE
    hue = (COLORS[product.color] + draw.uniform(-7, 7)) / 360
    strong, light = (_rgb(hue, 0.72, draw.uniform(0.68, 0.8)), _rgb(hue, 0.22, 0.97))
    ground = _rgb(draw.uniform(0, 1), draw.uniform(0, 0.05), draw.uniform(0.9, 0.98))
    mask = image.new("L", (side, side), 0)
    outline = image_draw.Draw(mask)
    scale = side * SIZES[product.size] * draw.uniform(0.95, 1.0) / 100
    left, top = ((side - 100 * scale) / 2 + draw.uniform(-0.02, 0.02) * side for _ in range(2))
    for kind, points in SHAPES[product.shape]:
        placed = [(left + x * scale, top + y * scale) for x, y in points]
        fill = 0 if kind == CUT else 255
        if kind == POLYGON:
            outline.polygon(placed, fill=fill)
        else:
            outline.ellipse([*placed[0], *placed[1]], fill=fill)
    mask = mask.rotate(draw.uniform(-7, 7), image.Resampling.BICUBIC)
    cloth = image.new("RGB", (side, side), strong)
    PAINTERS[product.pattern](image_draw.Draw(cloth), side, light, draw)
    mask, cloth = (part.resize((SIDE, SIDE), image.Resampling.BOX) for part in (mask, cloth))
    shadow = image.new("L", (SIDE, SIDE), 0)
    shadow.paste(mask, (SIDE // 50, SIDE // 32))
    shadow = shadow.filter(filters.BoxBlur(SIDE / 40)).point(lambda level: level * 0.35)
    drawing = image.new("RGB", (SIDE, SIDE), ground)
    drawing.paste((40, 40, 50), (0, 0), shadow)
    drawing.paste(cloth, (0, 0), mask)
    return drawing


def _stripes(canvas: Any, side: int, color: tuple[int, ...], draw: np.random.Generator) -> None:
    step = side / 11
    begin = draw.uniform(0, step)
    for number in range(-1, 13):
        y = begin + number * step
        canvas.rectangle([0, y, side, y + step * 0.45], fill=color)


def _dots(canvas: Any, side: int, color: tuple[int, ...], draw: np.random.Generator) -> None:
    step = side / 11
    for x, y in _grid(step, draw):
        canvas.ellipse([x - step * 0.27, y - step * 0.27, x + step * 0.27, y + step * 0.27], fill=color)


def _checks(canvas: Any, side: int, color: tuple[int, ...], draw: np.random.Generator) -> None:
    step = side / 11
    for number, (x, y) in enumerate(_grid(step, draw)):
        if (number // GRID + number % GRID) % 2:
            canvas.rectangle([x, y, x + step, y + step], fill=color)


GRID = 14
PAINTERS: dict[str, Callable[[Any, int, tuple[int, ...], np.random.Generator], None]] = {
    "plain": lambda canvas, side, color, draw: None,
    "stripes": _stripes,
    "dots": _dots,
    "checks": _checks,
}


def _grid(step: float, draw: np.random.Generator) -> Iterator[Point]:
    left, top = draw.uniform(-step, 0, size=2)
    return ((left + column * step, top + row * step) for row in range(GRID) for column in range(GRID))


def _rgb(hue: float, saturation: float, value: float) -> tuple[int, ...]:
    return tuple(round(255 * part) for part in colorsys.hsv_to_rgb(hue % 1, saturation, value))


def _pillow() -> tuple[Any, Any, Any]:
    try:
        from PIL import Image, ImageDraw, ImageFilter
    except ImportError as error:
        raise ConfigurationError("the products are drawn with Pillow: pip install 'omdml[demo]'") from error
    return Image, ImageDraw, ImageFilter
