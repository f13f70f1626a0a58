"""A shop from a table to a page that learned from clicks: python shop.py, in an empty folder (see ../SHOP.md)."""

import csv
import random
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from omdml.client import Client

PORT = sys.argv[1] if len(sys.argv) > 1 else "8080"
COLOURS = {"red": (220, 30, 40), "blue": (30, 60, 210), "green": (40, 160, 60), "black": (20, 20, 20)}
KINDS, BRANDS = ("shirt", "shoe", "cup", "lamp", "bag"), ("acme", "zeta", "nord")
CONFIGURATION = f"""
[catalogues.products]
path = "items/"
[models.shop]
[node]
bind = "127.0.0.1:{PORT}"
"""

# The shop's table: what people read, and vectors of two modalities. A real shop computes the vectors with a model for
# pictures and one for texts. These are made up: a picture shows a product in front of a background of another colour.
draw, products = random.Random(0), []
for number in range(1000):
    colour, kind = draw.choice(list(COLOURS)), draw.choice(KINDS)
    look = [level + draw.gauss(0, 40) for level in COLOURS[colour] + draw.choice(list(COLOURS.values()))]
    text = [(kind == other) + draw.gauss(0, 0.3) for other in KINDS]
    products.append([f"p{number}", colour, kind, draw.choice(BRANDS), draw.randint(5, 99), *look, *text])
vectors = [f"look.{i}" for i in range(6)] + [f"text.{i}" for i in range(5)]
with open("products.csv", "w", newline="") as table:
    csv.writer(table).writerows([["id", "colour", "kind", "brand", "price", *vectors], *products])
Path("omdml.toml").write_text(CONFIGURATION)
omdml = [sys.executable, "-m", "omdml.workers.cli"]
subprocess.run([*omdml, "catalogue", "build", "items/", "products.csv"], check=True)
colour_of = {str(product[0]): product[1] for product in products}

with socket.socket() as probe:
    if probe.connect_ex(("localhost", int(PORT))) == 0:
        sys.exit(f"another program, perhaps another node, answers at port {PORT}: end it, or name a port: shop.py 8090")

# In production systemd or Kubernetes runs these two (omdml deploy export).
with open("omdml.log", "w") as log:
    services = [subprocess.Popen([*omdml, name], stdout=log, stderr=log) for name in ("worker", "node")]
try:
    with Client(f"http://localhost:{PORT}", model="shop", retry_s=120) as shop:
        # A page as the shop shows it.
        cheap_ones = partial(shop.search, "p7", k=8, filter={"price": {"lt": 50}}, fields=["colour", "kind"])
        before = cheap_ones()
        # Visitors who look at a product click on others of the same colour, whatever kind they are.
        for seen in draw.choices(list(colour_of), k=40):
            page = [item.id for item in shop.search(seen, k=20).items]
            shop.page(seen, shown=page, clicked=[item for item in page if colour_of[item] == colour_of[seen]])
        # Wait for the clicks to be learned, then insist on a version that is newer than the first one.
        time.sleep(3)
        after = cheap_ones(min_version=before.version + 1)

        was = [item.id for item in before.items]
        print(f"like p7, a {colour_of['p7']} {products[7][2]}, below 50: version {before.version} -> {after.version}")
        for rank, item in enumerate(after.items, start=1):
            moved = f"from {was.index(item.id) + 1}" if item.id in was else "new"
            print(f"{rank:>3}  {item.id:<5} {item.attributes['colour']:<6} {item.attributes['kind']:<6} {moved}")
        hundred = list(colour_of)[:100]
        for version in (before.version, after.version):
            pages = zip(hundred, shop.search_each(hundred, k=10, version=version), strict=True)
            same = sum(colour_of[item.id] == colour_of[seen] for seen, page in pages for item in page.items) / 1000
            print(f"version {version}: {same:.0%} of the first ten, for a hundred products, have the product's colour")
finally:
    for service in services:
        service.terminate()
        service.wait()
