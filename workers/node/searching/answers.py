"""What searches answer with, and which part of it a page asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

MAX_K = 10_000
DEFAULT_K = 10


class Found(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One item of an answer. ``parts`` says what each modality, expert or matrix of the metric adds to the distance."""

    id: str
    distance: Annotated[
        float,
        msgspec.Meta(
            description="The squared learned distance. If the learner learns a score and no distance, it is minus the "
            "score, which may be below 0. Lower is closer."
        ),
    ]
    parts: Annotated[
        dict[str, float] | None, msgspec.Meta(description="What adds up to `distance`, if `explain` asked for it")
    ] = None
    attributes: dict[str, bool | int | float | str | list[str]] | None = None


class Paging(NamedTuple):
    """Which part of an answer is asked for: ``offset`` items are passed over, those to ``exclude`` never count."""

    offset: int = 0
    exclude: Sequence[str] = ()


FIRST_PAGE = Paging()


class Interleaved(msgspec.Struct, frozen=True, gc=False):
    """Says that an experiment mixed two rankings into an answer.

    The distance of each item comes from the ranking that brought it. So distances need not rise from item to item.
    """

    experiment: str
    search: str
    against: str
    against_version: int


class Answer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The items closest to a query, and the version that found them.

    A model without a version of its own answers with what its ``parent`` serves.
    """

    model: str
    version: int
    serial: int
    took_s: float
    items: list[Found]
    parent: str | None = None
    parent_version: int | None = None
    candidates_version: int | None = None
    interleaved: Interleaved | None = None


class Answers(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The items closest to each of several queries. One version found them all."""

    model: str
    version: int
    serial: int
    took_s: float
    answers: list[list[Found]]
    parent: str | None = None
    parent_version: int | None = None
    candidates_version: int | None = None


def single(answers: Answers) -> Answer:
    """The answer to the only query."""
    return Answer(
        model=answers.model,
        version=answers.version,
        serial=answers.serial,
        took_s=answers.took_s,
        items=answers.answers[0],
        parent=answers.parent,
        parent_version=answers.parent_version,
        candidates_version=answers.candidates_version,
    )
