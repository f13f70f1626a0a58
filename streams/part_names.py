"""Names of the parts of a model that is learned on every partition: part 3 of ``hot`` is kept as ``hot::part-3``.

Names of this form are reserved: no configuration may use one, and an event that names one is refused. So whoever sends
events can neither address nor forge a part.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SEPARATOR = "::part-"
FORM = re.compile(rf"(.+){SEPARATOR}(0|[1-9][0-9]{{0,8}})", re.DOTALL)


class PartName(NamedTuple):
    """The model that a part belongs to, and the number of the partition that it learns."""

    model: str
    number: int


def part_name(model: str, number: int) -> str:
    """What stores call the part of a model that learns this partition.

    Examples
    --------
    >>> part_name("hot", 3)
    'hot::part-3'
    """
    return f"{model}{SEPARATOR}{number}"


def part_of(name: str) -> PartName | None:
    """What a name says of a part; None if it is the name of a whole model.

    Examples
    --------
    >>> part_of("hot::part-3")
    PartName(model='hot', number=3)
    >>> part_of("hot")
    """
    # Asked about every model of every batch.
    if SEPARATOR not in name:
        return None
    match = FORM.fullmatch(name)
    return PartName(match[1], int(match[2])) if match else None


def whole_of(name: str) -> str:
    """The model that a name is about: the one that a part belongs to, or the model of this name.

    Examples
    --------
    >>> whole_of("hot::part-3"), whole_of("hot")
    ('hot', 'hot')
    """
    part = part_of(name)
    return part.model if part else name
