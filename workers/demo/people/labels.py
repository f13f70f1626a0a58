"""What the simulated people know: the true label of every item, and which queries are kept back for measuring."""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from omdml.errors import ConfigurationError
from omdml.streams.bounded_files import LINE_CHARACTERS, text_lines

# At most this many queries are kept back.
HELD_OUT = 200
# At most this share of a label's items is kept back.
HELD_OUT_SHARE = 1 / 8


class Labels:
    """Labelled items, of which some are held out: nobody searches for them or marks them.

    Parameters
    ----------
    of
        The label of each item id.
    seed
        Chooses the held-out items: about 200, at most an eighth of all, from each label in proportion.
    task
        The sense of similar in which the labels are, if a model learns several tasks.

    Attributes
    ----------
    held_out, open
        Ids of the held-out items, and of the others.
    alike
        Open items by label.
    queries
        Open items that share their label with another open item.

    Raises
    ------
    ConfigurationError
        There are fewer than two labels, or no label has three items.
    """

    def __init__(self, of: Mapping[str, str], seed: int, task: str | None = None) -> None:
        self.of, self.task = of, task
        items_by_label: defaultdict[str, list[str]] = defaultdict(list)
        for item, label in of.items():
            items_by_label[label].append(item)
        largest = max(map(len, items_by_label.values()), default=0)
        if len(items_by_label) < 2 or largest < 3:
            raise ConfigurationError(
                f"labels: got {len(items_by_label)} labels, the most frequent with {largest} items; people need at "
                "least two labels, and three items of one of them, to tell what is relevant: add labels or items"
            )
        self.held_out = _held_out(items_by_label.values(), min(HELD_OUT / len(of), HELD_OUT_SHARE), seed)
        self._hidden = hidden = frozenset(self.held_out)
        self.open = [item for item in of if item not in hidden]
        self.alike = {label: [item for item in items if item not in hidden] for label, items in items_by_label.items()}
        self.queries = [item for items in self.alike.values() if len(items) > 1 for item in items]

    def is_open(self, item: str) -> bool:
        """Whether people may mark this item: it has a label, and is not held out."""
        return item in self.of and item not in self._hidden

    def fits(self, query: str, answer: str) -> bool:
        """Whether the item ``answer`` has the query's label."""
        return self.of.get(answer) == self.of[query]

    def among(self, query: str, fitting: bool) -> Sequence[str]:
        """Open items with the query's label, or all open ones."""
        return self.alike[self.of[query]] if fitting else self.open

    @property
    def answers(self) -> int:
        """The number of labelled items except the query."""
        return len(self) - 1

    def __len__(self) -> int:
        return len(self.of)


def _held_out(groups: Iterable[Sequence[str]], share: float, seed: int) -> list[str]:
    """Choose this share of each group, and at least one item of a group of three or more."""
    draw = random.Random(seed)
    large = [group for group in groups if len(group) > 2]
    return [item for group in large for item in draw.sample(group, max(1, round(share * len(group))))]


def read_labels(path: str | Path, column: str = "label") -> dict[str, str]:
    """The label of each id, from a CSV file with columns ``id`` and ``column``.

    Raises ConfigurationError if the file cannot be read, lacks a column, leaves a label empty or names an id twice.
    """
    labels: dict[str, str] = {}
    try:
        rows = csv.DictReader(text_lines(path, LINE_CHARACTERS, newline="", encoding="utf-8-sig"))
        if not {"id", column} <= set(rows.fieldnames or ()):
            raise ConfigurationError(f"labels {path}: columns are {rows.fieldnames}, expected id and {column}")
        for row in rows:
            item, label = row["id"], row[column]
            if not item or not label or item in labels:
                what = "occurs twice" if item in labels else f"has {column} {label!r}, expected an id and a {column}"
                raise ConfigurationError(f"labels {path}, line {rows.line_num}: id {item!r} {what}")
            labels[item] = label
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigurationError(f"labels {path}: cannot be read as CSV in UTF-8 ({error})") from error
    return labels
