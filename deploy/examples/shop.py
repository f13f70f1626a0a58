"""A shop from a table to a page that learned from clicks: python shop.py, in an empty folder (see ../SHOP.md)."""

import csv
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

from omdml.client import Answer, Client

PORT = sys.argv[1] if len(sys.argv) > 1 else "8080"
COLOURS = {"red": (220, 30, 40), "blue": (30, 60, 210), "green": (40, 160, 60), "black": (20, 20, 20)}
KINDS, BRANDS = ("shirt", "shoe", "cup", "lamp", "bag"), ("acme", "zeta", "nord")
READ = ("id", "colour", "kind", "brand", "price")
CONFIGURATION = f"""
[catalogues.products]
path = "items/"
[models.shop]
[node]
bind = "127.0.0.1:{PORT}"
"""

# The shop's table: what people read, and vectors of two modalities. A real shop computes the vectors with a model for
# pictures and one for texts. These are made up: a picture shows a product in front of a background of another colour.
draw, rows = random.Random(0), []
for number in range(1000):
    colour, kind = draw.choice(list(COLOURS)), draw.choice(KINDS)
    look = [level + draw.gauss(0, 40) for level in COLOURS[colour] + draw.choice(list(COLOURS.values()))]
    text = [(kind == one) + draw.gauss(0, 0.3) for one in KINDS]
    rows.append([f"p{number}", colour, kind, draw.choice(BRANDS), draw.randint(5, 99), *look, *text])
with open("products.csv", "w", newline="") as table:
    vectors = [f"look.{i}" for i in range(6)] + [f"text.{i}" for i in range(5)]
    csv.writer(table).writerows([[*READ, *vectors], *rows])
Path("omdml.toml").write_text(CONFIGURATION)
omdml = [sys.executable, "-m", "omdml.workers.cli"]
subprocess.run([*omdml, "catalogue", "build", "items/", "products.csv"], check=True)
colour_of = {str(row[0]): row[1] for row in rows}


def cheap_ones(shop: Client, min_version: int = 0) -> Answer:
    """A page as the shop shows it."""
    return shop.search(
        "p7", k=8, filter={"price": {"lt": 50}}, fields=["colour", "kind", "price"], min_version=min_version
    )


with socket.socket() as probe:
    if probe.connect_ex(("localhost", int(PORT))) == 0:
        sys.exit(f"another program, perhaps another node, answers at port {PORT}: end it, or name a port: shop.py 8090")

# In production systemd or Kubernetes runs these two (omdml deploy export).
with open("omdml.log", "w") as log:
    services = [subprocess.Popen([*omdml, name], stdout=log, stderr=log) for name in ("worker", "node")]
try:
    with Client(f"http://localhost:{PORT}", model="shop", retry_s=120) as shop:
        before = cheap_ones(shop)
        # Visitors who look at a product click on others of the same colour, whatever kind they are.
        for seen in draw.choices(list(colour_of), k=40):
            page = [item.id for item in shop.search(seen, k=20).items]
            clicked = [item for item in page if colour_of[item] == colour_of[seen]]
            if 0 < len(clicked) < len(page):
                shop.page(seen, shown=page, clicked=clicked)
        # Wait for the clicks to be learned, then insist on a version that is newer than the first one.
        time.sleep(3)
        after = cheap_ones(shop, before.version + 1)
        same = {before.version: 0, after.version: 0}
        for version in same:
            for seen in list(colour_of)[:100]:
                answer = shop.search(seen, k=10, version=version)
                same[version] += sum(colour_of[item.id] == colour_of[seen] for item in answer.items)
finally:
    for service in services:
        service.terminate()
        service.wait()

was = [item.id for item in before.items]
print(f"like p7, a {colour_of['p7']} {rows[7][2]}, below 50: version {before.version} -> {after.version}")
for rank, item in enumerate(after.items, start=1):
    moved = f"from {was.index(item.id) + 1}" if item.id in was else "new"
    print(f"{rank:>3}  {item.id:<5} {item.attributes['colour']:<6} {item.attributes['kind']:<6} {moved}")
for version, count in same.items():
    print(f"version {version}: {count / 1000:.0%} of the first ten, for a hundred products, have the product's colour")
