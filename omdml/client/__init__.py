"""A client of nodes over HTTP, for programs that search and send feedback. It does not import numpy or numba.

>>> from omdml.client import Client
>>> with Client("http://localhost:8080", model="shop") as shop:  # doctest: +SKIP
...     page = shop.search("17", k=20, filter={"price": {"lt": 20}})
...     shop.page("17", shown=[item.id for item in page.items], clicked=[page.items[3].id])
"""

from omdml.client.answers import (
    Answer,
    Changed,
    Comparison,
    Freshness,
    Item,
    Line,
    Listed,
    ListedItem,
    Live,
    Moved,
    Pointer,
    Side,
)
from omdml.client.client import Client
from omdml.client.errors import (
    BadRequest,
    Behind,
    ClientError,
    Conflict,
    Denied,
    NotFound,
    Refused,
    Unavailable,
    Unreachable,
)
from omdml.client.options import Options
from omdml.errors import ParameterError
from omdml.feedback import Page, Pair, Quadruplet, Ranking, SetJudgement, Triplet

__all__ = [
    "Answer",
    "BadRequest",
    "Behind",
    "Changed",
    "Client",
    "ClientError",
    "Comparison",
    "Conflict",
    "Denied",
    "Freshness",
    "Item",
    "Line",
    "Listed",
    "ListedItem",
    "Live",
    "Moved",
    "NotFound",
    "Options",
    "Page",
    "Pair",
    "ParameterError",
    "Pointer",
    "Quadruplet",
    "Ranking",
    "Refused",
    "SetJudgement",
    "Side",
    "Triplet",
    "Unavailable",
    "Unreachable",
]
