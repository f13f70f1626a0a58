"""The number of each format of stored data. Numbers are written and checked only here.

A number rises if a change would make another release misread the data: a key that is new, removed, or has another
meaning. ``tests/formats`` has a sample of every number so far, and fails if the structure of newly written data differs
from the sample of its number.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from omdml.errors import CorruptError, FormatError, OmdmlError


class Format(NamedTuple):
    """A kind of stored data: the number of its format that this omdml writes, and the oldest that it still reads."""

    what: str
    number: int
    oldest: int = 1

    def check(self, number: object, where: str, error: type[OmdmlError] = FormatError) -> None:
        """Raise ``error``, with the release that wrote the data, unless this omdml can read this number.

        Examples
        --------
        >>> Format("checkpoint", 2).check(3, "checkpoint")
        Traceback (most recent call last):
        omdml.errors.FormatError: checkpoint: written by a newer omdml (format 3, this one reads up to 2): run that
        release here too. Nothing was changed
        """
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            error = CorruptError if error is FormatError else error
            raise error(f"{where}: its format is {number!r:.40}, expected a number from 1: damaged")
        if number > self.number:
            raise error(
                f"{where}: written by a newer omdml (format {number}, this one reads up to {self.number}): run that "
                "release here too. Nothing was changed"
            )
        if number < self.oldest:
            raise error(
                f"{where}: written by an older omdml (format {number}, this one reads {self.oldest} to {self.number}): "
                "run the release that wrote it, or make it again. Nothing was changed"
            )


class Numbered(msgspec.Struct):
    """The number of stored JSON. It is checked before anything else is read."""

    format: int


class NumberedLater(msgspec.Struct):
    """The number of stored JSON whose first format had none."""

    format: int = 1


# States with number 1 were written while the state of dca was still changing. Since number 3 it can have a parent,
# since number 4 weights of triplets, since number 5 sums of items as they come, and since number 6 a parent that is
# fitted.
STATE = Format("learner state", 6)
# The progress in a checkpoint is part of the format (workers/model/progress.py). Number 3 hashes only the headers of
# the files in it.
CHECKPOINT = Format("checkpoint", 3)
SNAPSHOT = Format("snapshot", 1)
# A catalogue in a folder. Since number 2 it can have a map of coordinates, since number 3 a journal of changes, since
# number 4 describers.
CATALOGUE = Format("catalogue", 4)
# The numbers mean the same as those of a folder.
REDIS_CATALOGUE = Format("catalogue in Redis", 4)
# The map of a catalogue.
MAP = Format("coordinate map", 1)
# The describers of pictures and texts in a catalogue.
DESCRIBER = Format("describer", 1)
# The layout of a folder store, its marks and its history entries. Number 2 notes which checkpoint was saved last,
# number 3 in each mark which replaced checkpoint its owner knew of.
FOLDER_STORE = Format("folder store", 3)
# The keys of a Redis store and their fields.
REDIS_STORE = Format("Redis store", 1)
# The rows of a store over a database with transactions, in whichever database they lie.
TRANSACTIONAL_STORE = Format("transactional store", 1)
# The committed position of a group that reads a log in files.
COMMIT = Format("committed position", 1)
# Since number 2, a letter can say that it was dismissed.
LETTER = Format("dead letter", 2)
# The placement of models on partitions.
PLACEMENT = Format("placement", 1)
