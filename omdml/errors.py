"""The one tree of errors: every error omdml raises on purpose is an :class:`OmdmlError`.

A message says what is wrong, where, what was got, what was expected and what to do; the evidence stays on the error as
attributes. ``reason`` is a short code that never changes: dead letters and metrics are counted by it. If an error
``needs_operator``, starting the process again does not help: somebody must decide, or correct something, as the message
says.
"""

from __future__ import annotations

import re


def quoted(value: object, most: int = 100) -> str:
    """A value from outside, as messages quote it: shortened to ``most`` characters if it is longer.

    Examples
    --------
    >>> quoted("x" * 5000, 20)
    "'xxxxxxxxxx...xxxxx'"
    """
    # numpy writes a matrix in several lines.
    return shortened(re.sub(r"\n\s*", " ", repr(value)), most)


def shortened(text: str, most: int = 200) -> str:
    """The text. If it is longer than ``most``, as messages of libraries can be, its beginning and its end."""
    end = most // 3
    return text if len(text) <= most else f"{text[: most - end - 3]}...{text[-end:]}"


def row_range(count: int) -> str:
    """The numbers of ``count`` rows, as messages tell them."""
    return f"rows 0 to {count - 1}" if count else "no rows"


class OmdmlError(Exception):
    """Base of everything omdml raises on purpose."""

    reason = "error"
    needs_operator = False


class FeedbackError(OmdmlError):
    """A feedback event, or a row of comparisons, that cannot be learned.

    Parameters
    ----------
    message
        A sentence: what is wrong and where, what was got, what was expected, and what to do.
    reason
        A short code that never changes, one of :data:`omdml.letter_reasons.REASONS`.
    row
        Index of the first bad row among those given to ``learn_many``, if there is one.
    """

    def __init__(self, message: str, *, reason: str = "invalid", row: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.row = row


class NotStarted(OmdmlError):
    """A learner was asked for something that it has only once it has started (see :class:`omdml.Learner`)."""

    reason = "not_started"


class StartError(OmdmlError):
    """A start could not be computed, for example from too few rows for PCA, or from values that are not finite.

    Parameters
    ----------
    message
        A sentence: what is wrong and where, what was got, what was expected, and what to do.
    rows
        How many rows would be enough, if there were too few.
    """

    reason = "start"

    def __init__(self, message: str, *, rows: int | None = None) -> None:
        super().__init__(message)
        self.rows = rows


class ParameterError(OmdmlError, ValueError):
    """A hyperparameter or argument that is out of range, or of the wrong kind."""

    reason = "parameter"


class CorruptError(OmdmlError):
    """Damaged bytes: a checkpoint, snapshot or state that is not what its metadata says.

    Attributes
    ----------
    epoch
        The epoch of a claim whose checkpoints cannot be read; a command that replaces them needs it. Otherwise empty.
    """

    reason = "corrupt"
    needs_operator = True
    epoch = ""


class FormatError(CorruptError):
    """Undamaged bytes in a format that this release cannot read. They must never be replaced."""

    reason = "format"


class MeasureError(OmdmlError, ValueError):
    """A measure cannot judge its input, such as embeddings that are not finite."""

    reason = "measure"


class ConfigurationError(OmdmlError):
    """A configuration that cannot be used.

    Parameters
    ----------
    mistakes
        Each names a key, its value and what is expected. The message has the first, and says how many more there are.
    """

    reason = "configuration"

    def __init__(self, *mistakes: str) -> None:
        more = f" (and {len(mistakes) - 1} more: omdml config check lists all)" if len(mistakes) > 1 else ""
        super().__init__("".join(mistakes[:1]) + more)
        self.mistakes = mistakes


class NoModel(ConfigurationError):
    """A configuration that names no model, although the process has nothing to do without one."""


class CatalogueError(OmdmlError):
    """A catalogue that is missing, damaged, or does not fit the model."""

    reason = "catalogue"


class StoreError(OmdmlError):
    """A store that cannot be reached, or whose content contradicts itself."""

    reason = "store"


class SnapshotGone(StoreError):
    """The live version names a snapshot whose bytes are gone. Asking again does not bring them back."""


class NotKept(StoreError):
    """The store keeps no snapshot of this version."""

    reason = "not_kept"


class StoreLost(StoreError):
    """The store lost something that it must have had: a commit has no mark, or an owner has no epoch."""

    reason = "store_lost"
    needs_operator = True


class Fenced(StoreError):
    """Another worker owns this model now. Nothing was written."""

    reason = "fenced"


class StoreRefused(StoreError):
    """The store rejects our credentials or lacks a permission. Waiting does not help: an operator must correct it."""

    needs_operator = True


class SourceError(OmdmlError):
    """A feedback log that cannot be reached or used."""

    reason = "source"


class SourceRefused(SourceError):
    """The feedback log rejects our credentials or lacks a permission. Waiting does not help."""

    needs_operator = True


class ClientFailed(SourceRefused):
    """Clients of a feedback log failed again and again in this process. Waiting does not help, but a restart may."""

    needs_operator = False


class GapError(SourceError):
    """The log no longer holds the events at a position. Going on would silently lose events.

    Parameters
    ----------
    message
        What is missing, where, and how to go on.
    partition
        (topic id, number) of the partition that stopped, if the log has partitions.
    position
        The offset that the log no longer holds; None if the offset belongs to another log.
    available
        The first offset that the log holds now, and its end.
    resume
        The offset at which to go on without the missing events; None if only the beginning of the log is possible.
    cut
        Whether the log lost its end, so that what it holds from ``resume`` on differs from what was read before.
    """

    reason = "gap"
    needs_operator = True

    def __init__(
        self,
        message: str,
        *,
        partition: tuple[str, int] | None = None,
        position: int | None = None,
        available: tuple[int, int] | None = None,
        resume: int | None = None,
        cut: bool = False,
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.position = position
        self.available = available
        self.resume = resume
        self.cut = cut
