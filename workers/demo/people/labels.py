"""What the simulated people know: the true label of every item, and the queries kept back to measure with."""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from omdml.errors import ConfigurationError
from omdml.streams.bounded_files import LINE_CHARACTERS, text_lines

# At most so many queries are kept back.
HELD_OUT = 200
# At most this share of a label's items is kept back.
HELD_OUT_SHARE = 1 / 8


class Labels:
    """Labelled items, of which some are held out: nobody searches for them or marks them.

    Parameters
    ----------
    of
        Label of each item id.
    seed
        Of the choice of held-out items: of each label in proportion, about 200, at most an eighth of all.
    task
        What the labels are similar by, if a model learns several such tasks.

    Attributes
    ----------
    held_out, open
        Ids of the held-out items, and of the others.
    alike
        Open items by label.
    queries
        Open items that have an open one of the same label.

    Raises
    ------
    ConfigurationError
        Fewer than two labels, or none with three items.
    """

    def __init__(self, of: Mapping[str, str], seed: int, task: str | None = None) -> None:
        self.of, self.task = of, task
        everything: defaultdict[str, list[str]] = defaultdict(list)
        for item, label in of.items():
            everything[label].append(item)
        largest = max(map(len, everything.values()), default=0)
        if len(everything) < 2 or largest < 3:
            raise ConfigurationError(
                f"labels: {len(everything)} labels, the most frequent with {largest} items: people need two labels, "
                "and three items of one of them, to tell what is relevant"
            )
        self.held_out = _held_out(everything.values(), min(HELD_OUT / len(of), HELD_OUT_SHARE), seed)
        self._hidden = hidden = frozenset(self.held_out)
        self.open = [item for item in of if item not in hidden]
        self.alike = {label: [one for one in items if one not in hidden] for label, items in everything.items()}
        self.queries = [item for items in self.alike.values() if len(items) > 1 for item in items]

    def is_open(self, item: str) -> bool:
        """Whether people may mark it: it has a label, and is not held out."""
        return item in self.of and item not in self._hidden

    def fits(self, query: str, found: str) -> bool:
        """Whether it has the query's label."""
        return self.of.get(found) == self.of[query]

    def among(self, query: str, fitting: bool) -> Sequence[str]:
        """Open items of the query's label, or all open ones."""
        return self.alike[self.of[query]] if fitting else self.open

    @property
    def answers(self) -> int:
        """Every labelled item but the query."""
        return len(self) - 1

    def __len__(self) -> int:
        return len(self.of)


def _held_out(groups: Iterable[Sequence[str]], share: float, seed: int) -> list[str]:
    """This share of each group, at least one of a group with three."""
    draw = random.Random(seed)
    large = [group for group in groups if len(group) > 2]
    return [item for group in large for item in draw.sample(group, max(1, round(share * len(group))))]


def read_labels(path: str | Path, column: str = "label") -> dict[str, str]:
    """The label of each id, from a CSV file with columns ``id`` and ``label``, or another than that.

    Raises ConfigurationError: it cannot be read, lacks a column, leaves a label empty or names an id twice.
    """
    labels: dict[str, str] = {}
    try:
        rows = csv.DictReader(text_lines(path, LINE_CHARACTERS, newline="", encoding="utf-8-sig"))
        if not {"id", column} <= set(rows.fieldnames or ()):
            raise ConfigurationError(f"labels {path}: columns are {rows.fieldnames}, expected id and {column}")
        for row in rows:
            item, label = row["id"], row[column]
            if not item or not label or item in labels:
                what = "is there already" if item in labels else f"has {column} {label!r}, expected both"
                raise ConfigurationError(f"labels {path}, line {rows.line_num}: id {item!r} {what}")
            labels[item] = label
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"labels {path}: cannot be read as CSV in UTF-8 ({error})") from error
    return labels
