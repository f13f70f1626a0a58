"""What searches answer with, and which part of it a page asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

MAX_K = 10_000
DEFAULT_K = 10


class Found(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One item of an answer.

    ``attributes`` are those that were asked for, as far as the item has them. ``parts`` are what each modality, expert
    or matrix of the metric adds to the distance, if ``explain`` asked for them.
    """

    id: str
    distance: Annotated[
        float,
        msgspec.Meta(
            description="The squared learned distance; under a metric without an embedding, minus the score, which may "
            "be below 0. Lower is closer."
        ),
    ]
    parts: Annotated[
        dict[str, float] | None, msgspec.Meta(description="What adds up to `distance`, if `explain` asked for it")
    ] = None
    attributes: dict[str, bool | int | float | str | list[str]] | None = None


class Page(NamedTuple):
    """Which part of an answer is asked for: ``offset`` items are passed over, those to ``exclude`` never count."""

    offset: int = 0
    exclude: Sequence[str] = ()


FIRST_PAGE = Page()


class Interleaved(msgspec.Struct, frozen=True, gc=False):
    """That an answer is made of two, for an experiment: with the model ``against``, at its version.

    Clicks on the answer go to ``POST /clicks`` with the id ``search``. Each item has the distance that the ranking
    which brought it gives, so distances need not rise from item to item.
    """

    experiment: str
    search: str
    against: str
    against_version: int


class Answer(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The items closest to a query, closest first, and the snapshot that says so.

    A model without a snapshot answers with what its ``parent`` serves; its version is 0, that of the parent beside it.
    If an index in a vector database proposed the candidates, ``candidates_version`` is the version that it held.
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
    """The items closest to each of several queries, in the order of the queries, all under one snapshot."""

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
