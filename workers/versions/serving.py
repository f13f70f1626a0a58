"""What nodes can serve of a model, told from the store alone: by ``omdml doctor``, ``models list`` and ``history``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, Protocol

from omdml.errors import CatalogueError, CorruptError, StoreError, StoreRefused
from omdml.streams.catalogues.opening import open_manifest
from omdml.streams.protocols.store import Pointer, SnapshotStore
from omdml.streams.stores.journal import PINNED, PUBLICATIONS, JournalEntry, destination
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.wording import learn_again, span, when
from omdml.workers.versions.targets import Kind, Line, misfit, publications_of, since_reset


class Withheld(NamedTuple):
    """Newer versions do not go live: since when, in seconds since the epoch, and why."""

    since: float
    reason: str


class Problem(NamedTuple):
    """Why no node can load a version, and what an operator can do if it is live."""

    text: str
    remedy: str


class Standing(NamedTuple):
    """How a model stands with the nodes.

    ``problem`` says why no node can load the live version; it is None if they can. ``reset_at`` is set if what is live
    was learned before the model was reset; ``drift`` is the newest line of the history that tells of drift.
    """

    pointer: Pointer
    problem: Problem | None
    withheld: Withheld | None
    reset_at: float | None
    drift: Line | None

    def in_words(self, now: float) -> str:
        """Whether nodes can load the live version, and what else an operator should know, for a cell of a table."""
        if self.problem:
            return f"no: {self.problem.text}"
        words = [f"pinned {span(now - self.pointer.published_at)} ago"] if self.pointer.pinned else []
        if self.reset_at is not None:
            words.append(f"learned before the reset of {when(self.reset_at)}")
        if self.withheld:
            words.append(f"newer versions withheld for {span(now - self.withheld.since)}: {self.withheld.reason}")
        return f"yes, {'; '.join(words)}" if words else "yes"


class KindOf(Protocol):
    """From a model's name to its catalogue, None if no configuration covers the name; raises CatalogueError."""

    def __call__(self, model: str, /) -> Kind | None:
        """Look up the kind of catalogue of a model."""


def catalogue_kinds(configuration: Configuration) -> KindOf:
    """Answers what a model's catalogue is now; each is looked at once."""
    manifest_at = cache(open_manifest)

    def of(model: str) -> Kind | None:
        matched = configuration.match(model)
        if matched is None:
            return None
        config = matched[1]
        return manifest_at(configuration.catalogues[config.catalogue].path).in_coordinates(config.coordinates)

    return of


def standing(store: SnapshotStore, model: str, kind_of: KindOf) -> Standing | None:
    """How a model stands; None if nothing is published. Raises StoreError if the store cannot be asked."""
    pointer = store.current(model)
    if pointer is None:
        return None
    lines = store.history(model)
    drifts = [line for line in lines if line["what"] == "drift"]
    return Standing(
        pointer,
        unservable(store, model, None, kind_of),
        withheld(lines),
        before_reset(lines, pointer.version, pointer.digest),
        drifts[-1] if drifts else None,
    )


def unservable(store: SnapshotStore, model: str, version: int | None, kind_of: KindOf) -> Problem | None:
    """Why no node can load a version (None: the live one) of a model; None if they can.

    Raises StoreError if the store cannot be asked.
    """
    another = (
        f"have nodes answer with an older version (omdml rollback {model}); omdml history {model} says which ones they "
        "can load"
    )
    try:
        loaded = store.load(model, version)
        kind = kind_of(model)
    except StoreRefused:
        raise
    except CorruptError:
        return Problem("its bytes are damaged", another)
    except CatalogueError as error:
        return Problem(f"the catalogue cannot be read ({error})", "bring the catalogue back, then restart the nodes")
    except StoreError:
        # Either the bytes that the pointer names are gone, or the store is out of reach. Then this question fails too.
        store.current(model)
        return Problem("its bytes are gone from the store", another)
    if loaded is None:
        return Problem("it is not kept", another)
    if kind is None:
        return Problem("no configured model covers this name", f"add it to [models], or omdml models delete {model}")
    if text := misfit(loaded[1], kind):
        if dict(loaded[1].metric.dims) != dict(kind.dims):
            # Workers refuse the model: they cannot take it over to another shape.
            return Problem(f"{text}, with other dimensions", learn_again(model))
        return Problem(
            text,
            "restart the workers: they publish it again on the new catalogue, at once if the model is configured by "
            "its own name, otherwise with its next event",
        )
    return None


def withheld(lines: Sequence[Line]) -> Withheld | None:
    """Since when the guard withholds what is learned, and why; None if it does not.

    A pin withholds as well: that is a person's decision, and the pointer says so.
    """
    newest: Withheld | None = None
    for line in lines:
        if line["what"] == "held" and line["reason"] != PINNED:
            newest = Withheld(newest.since if newest else line["at"], line["reason"])
        elif line["what"] in PUBLICATIONS or line["what"] == "reset":
            newest = None
    return newest


def before_reset(lines: Sequence[Line], version: int, digest: str) -> float | None:
    """When the model was reset after this snapshot was learned; None if it was not."""
    published = publications_of(lines, version, digest)
    if not published or published[-1] in since_reset(lines):
        return None
    reset_at: float = next(line["at"] for line in reversed(lines) if line["what"] == "reset")
    return reset_at


def loadable(
    store: SnapshotStore, model: str, lines: Sequence[Line], whole_history: Sequence[Line], kind_of: KindOf
) -> list[str]:
    """For each of these lines of a history: whether nodes can load the snapshot that it brought; empty for moves.

    Raises StoreError if the store cannot be asked.
    """
    live, entries = store.current(model), [JournalEntry(**line) for line in whole_history]
    versions = {line["version"] for line in lines if line["what"] in PUBLICATIONS}
    stands_for = {version: destination(entries, version, live) for version in versions}
    problems = {version: unservable(store, model, version, kind_of) for version in versions}
    reasons = []
    for line in lines:
        version, problem = line["version"], problems.get(line["version"])
        if line["what"] not in PUBLICATIONS:
            reasons.append("")
        elif (served := stands_for[version]) and line["digest"] != served.digest:
            reasons.append("no: another one of this version takes its place")
        elif problem:
            reasons.append(f"no: {problem.text}")
        else:
            reset_at = before_reset(whole_history, version, line["digest"])
            reasons.append("yes" if reset_at is None else "yes, from before the reset")
    return reasons
