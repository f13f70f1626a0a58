"""The one tree of errors: every error omdml raises on purpose is an :class:`OmdmlError`.

A message says what is wrong, where, what was got, what was expected and what to do; the evidence stays on the error as
attributes. ``reason`` is a short code that never changes: dead letters and metrics are counted by it. If an error
``needs_operator``, starting the process again does not help: somebody must decide, or correct something, as the message
says.
"""

from __future__ import annotations


class OmdmlError(Exception):
    """Base of everything omdml raises on purpose."""

    reason = "error"
    needs_operator = False


class FeedbackError(OmdmlError):
    """A feedback event, or a row of comparisons, that cannot be learned.

    Parameters
    ----------
    message
        What is wrong, where, got, expected, what to do.
    reason
        A code out of :data:`omdml.letter_reasons.REASONS`.
    row
        Index of the first bad row among those given to ``learn_many``, if there is one.
    """

    def __init__(self, message: str, *, reason: str = "invalid", row: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.row = row


class NotStarted(OmdmlError):
    """A learner was asked for what it only has after its start (its first call, or ``init`` given as arrays)."""

    reason = "not_started"


class StartError(OmdmlError):
    """A start could not be computed: too few rows for PCA, arrays of the wrong shape.

    Parameters
    ----------
    message
        What is wrong, where, got, expected, what to do.
    rows
        How many would be enough, if there were too few.
    """

    reason = "start"

    def __init__(self, message: str, *, rows: int | None = None) -> None:
        super().__init__(message)
        self.rows = rows


class ParameterError(OmdmlError, ValueError):
    """A hyperparameter out of its range."""

    reason = "parameter"


class CorruptError(OmdmlError):
    """Bytes that are not what they say: a damaged checkpoint, snapshot or state."""

    reason = "corrupt"
    needs_operator = True


class FormatError(CorruptError):
    """Whole bytes of a format that this release does not read: never damaged, never to be replaced."""

    reason = "format"


class MeasureError(OmdmlError, ValueError):
    """A measure was asked of something it cannot judge, such as embeddings that are not finite."""

    reason = "measure"


class ConfigurationError(OmdmlError):
    """A configuration that cannot be used; says which key, what was got, what is expected."""

    reason = "configuration"


class CatalogueError(OmdmlError):
    """A catalogue that is missing, damaged, or does not fit the model."""

    reason = "catalogue"


class StoreError(OmdmlError):
    """A store that cannot be reached, or whose content contradicts itself."""

    reason = "store"


class NotKept(StoreError):
    """A version that no snapshot is kept of."""

    reason = "not_kept"


class StoreLost(StoreError):
    """The store forgot what the log says it knew: a commit without a mark, an owner without an epoch."""

    reason = "store_lost"
    needs_operator = True


class Fenced(StoreError):
    """Another worker owns this model now: nothing was written."""

    reason = "fenced"


class StoreRefused(StoreError):
    """A store that does not let us in, or not that far: waiting does not help, an operator must correct something."""

    needs_operator = True


class SourceError(OmdmlError):
    """A feedback log that cannot be reached or used."""

    reason = "source"


class SourceRefused(SourceError):
    """A feedback log that does not let us in, or not that far: waiting does not help."""

    needs_operator = True


class ClientFailed(SourceRefused):
    """Clients of a feedback log failed again and again in this process: waiting does not help, a new process may."""

    needs_operator = False


class GapError(SourceError):
    """The log no longer holds the events at a position: going on there would lose some silently.

    Parameters
    ----------
    message
        What is missing, where, and how to go on.
    partition
        (topic id, number) of the partition that stopped, if the log has partitions.
    position
        The offset that the log no longer holds; None if it belongs to another log.
    available
        First offset that the log holds now, and its end.
    resume
        Where going on without what is missing begins; None if only the log's beginning will do.
    cut
        The log lost its end: what it holds from ``resume`` on is not what was read there before.
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
