"""One call of a store for many models: the answer has one result for each model, or the error that it met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from omdml.errors import CorruptError, StoreLost

# Disks take the syncs of several threads together.
THREADS = 8

Answer = TypeVar("Answer")


def one_by_one(act: Callable[..., Answer], calls: Iterable[tuple[Any, ...]]) -> list[Answer | CorruptError | StoreLost]:
    """What ``act`` answers to each call, or the error about that one model; any other error is raised."""
    return [attempt(act, arguments) for arguments in calls]


def together(act: Callable[..., Answer], calls: Iterable[tuple[Any, ...]]) -> list[Answer | CorruptError | StoreLost]:
    """Answers of the same calls by several threads, which wait for the disk together."""
    all_calls = list(calls)
    if len(all_calls) < 2:
        return one_by_one(act, all_calls)
    with ThreadPoolExecutor(min(THREADS, len(all_calls)), "omdml-store") as threads:
        return list(threads.map(lambda arguments: attempt(act, arguments), all_calls))


def attempt(act: Callable[..., Answer], arguments: tuple[Any, ...]) -> Answer | CorruptError | StoreLost:
    """What one call answers, or the error about its model."""
    try:
        return act(*arguments)
    except (CorruptError, StoreLost) as error:
        return error


def the_only(answers: Sequence[Answer | CorruptError | StoreLost]) -> Answer:
    """The answer about one model; raises the error about it."""
    (answer,) = answers
    if isinstance(answer, CorruptError | StoreLost):
        raise answer
    return answer
