"""Whether learning can go on from what is saved, and from where."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from omdml.errors import ConfigurationError, CorruptError
from omdml.streams.part_names import part_of
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import ModelPosition, Store
from omdml.streams.topic_extents import Extent
from omdml.workers.configuration.specs import Specs
from omdml.workers.configuration.wording import amount
from omdml.workers.doctor.findings import Remark, error, warning
from omdml.workers.doctor.remarks import gathered

# Seconds to spend on all models together, because thousands of checkpoints take longer.
LOOK_S = 10.0
# A new model is live for a second or two before it is saved.
YOUNG_S = 60.0


class SavedModels:
    """What was seen of all checkpoints, by kind of problem and by model."""

    def __init__(self, extents: Sequence[Extent], placement: Placement | None = None) -> None:
        self.placement = placement
        self.extents = {extent.partition: extent for extent in extents}
        self.topics = {extent.partition.topic_id for extent in extents}
        self.waits: dict[str, str] = {}
        self.misfit: dict[str, str] = {}
        self.fell_back: dict[str, str] = {}
        self.beyond: dict[str, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.now = time.time()
        self.looked = self.sound = 0

    def check(self, name: str, specs: Specs, store: Store, position: ModelPosition | None) -> None:
        """Look at one model, and note what is wrong with it. ``position`` is the one that the store has for it."""
        spec = specs.of_stored(name)
        if spec is None:
            return
        whole = name in specs.in_parts
        try:
            checkpoint = store.peek(name)
            if checkpoint:
                spec.resumed(checkpoint)
        except CorruptError as problem:
            self.waits[name] = waits(name, f"its checkpoint cannot be read ({problem})", whole)
        except ConfigurationError as problem:
            self.misfit[name] = str(problem)
        else:
            if checkpoint:
                self.sound += 1
                self._check_position(name, position, checkpoint.next, store)
            elif position:
                self.waits[name] = waits(name, "no checkpoint of it can be read, all are damaged", whole)
            elif store.fell_back(name):
                self.waits[name] = waits(name, "something removed its checkpoints", whole)
            elif (live := store.current(name)) and live.version and self.now - live.published_at > YOUNG_S:
                self.waits[name] = waits(name, f"version {live.version:,} is live, but its checkpoint is gone", whole)

    def _check_position(self, name: str, position: ModelPosition | None, resumed: int, store: Store) -> None:
        """Compare a model's position with the log, the placement, and the checkpoint that could be read."""
        if position is None:
            return
        home, offset = position
        extent = self.extents.get(home)
        older = resumed < offset or store.fell_back(name)
        if why := self._misplaced(name, home, offset, older):
            self.waits[name] = waits(name, why)
        elif older and extent and resumed < extent.begin:
            why = f"its newest checkpoint is damaged, the one before it ends at offset {resumed:,}, and the log begins "
            self.waits[name] = waits(name, f"{why}at {extent.begin:,}")
        elif resumed < offset:
            self.fell_back[name] = (
                f"model {name}: its newest checkpoint is damaged. A worker goes on from the one before it, at offset "
                f"{resumed:,} of partition {home.number}, and learns again what came since. Let a worker run, and look "
                "for what damaged the store (disk, memory, another program)"
            )
        if extent is None and self.topics and home.topic_id not in self.topics:
            self.elsewhere[name] = (
                f"model {name} was learned from log {home.topic_id}, but the configured log {self._log_in_words()}. "
                "Bring the old log back, or correct [log]. Or have workers begin at the beginning of the configured "
                "log: omdml worker --accept-gap"
            )
        elif extent and offset > extent.end:
            self.beyond[name] = (
                f"model {name} has learned partition {home.number} up to offset {offset:,}, but the log ends at "
                f"{extent.end:,}: the log was cut, or is an older copy. New events below {offset:,} are not learned. "
                f"Bring the log back, or learn what it holds now: omdml replay --model {name} --publish --replace"
            )

    def _log_in_words(self) -> str:
        # A log in files that is not there has no name.
        if name := ", ".join(sorted(self.topics)):
            return f"is {name}: the log was created again, or is another one"
        return "is not there: it was moved or deleted, its disk is not mounted, or it is another one"

    def _misplaced(self, name: str, home: Partition, offset: int, older: bool) -> str:
        """Why no worker moves a model from the partition of its checkpoint to the one that it lives on now."""
        placement = self.placement
        if placement is None or home.topic_id not in self.topics or placement.home(name) == home.number:
            return ""
        left_at, old_place = placement.left(name, home.number), f"partition {home.number}"
        moved = f"it lives on partition {placement.home(name)} now, and"
        if left_at is None:
            rewound = "if omdml topics rewind was interrupted, run it again"
            return f"{moved} its checkpoint is about {old_place}, on which it never lived ({rewound})"
        if older:
            return f"{moved} its newest checkpoint, which said what it learned on {old_place}, is damaged"
        if offset > left_at:
            return f"{moved} its checkpoint holds events of {old_place} from after it left, at offset {left_at:,}"
        return ""

    def remarks(self) -> list[Remark]:
        """The remarks on all models, errors before warnings."""
        errors = (self.waits, self.beyond, self.elsewhere, self.misfit)
        remarks = [remark for problems in errors for remark in gathered(problems, error)]
        return remarks + gathered(self.fell_back, warning)


def waits(name: str, why: str, whole: bool = False) -> str:
    """The finding about a model whose events wait in the log, or about a ``whole`` whose parts are not added up."""
    if whole:
        return (
            f"model {name} waits: {why}. Its parts go on learning, and nothing of them goes live. Restore the store "
            f"from a backup. If there is none, begin the model again from nothing: omdml models reset {name}"
        )
    if part := part_of(name):
        return (
            f"part {part.number} of model {part.model} waits: {why}. Its events wait in the log, and nothing of "
            "the model goes live. Restore the store from a backup. If there is none, begin the model again from "
            f"nothing: omdml models reset {part.model}"
        )
    return (
        f"model {name} waits: {why}. Its events wait in the log, and other models go on. If the log still holds what "
        f"the model learned, learn it again: omdml replay --model {name} --publish --replace. Otherwise restore the "
        f"store from a backup. If there is none, begin the model again from nothing: omdml models reset {name}"
    )


def look_at_checkpoints(
    specs: Specs, store: Store, names: Sequence[str], extents: Callable[[], Sequence[Extent]], look_s: float = LOOK_S
) -> SavedModels:
    """What is saved of these models, compared with the configuration and the log, as far as ``look_s`` allows.

    The log is asked how far it reaches after the store: it only grows, so nothing sound lies beyond its end.
    """
    positions, log_now = store.positions(names), extents()
    placement = store.placement(log_now[0].partition.topic_id) if log_now else None
    seen, until = SavedModels(log_now, placement), time.monotonic() + look_s
    for name in names:
        if time.monotonic() >= until:
            break
        seen.looked += 1
        seen.check(name, specs, store, positions.get(name))
    return seen


def checkpoints(seen: SavedModels, count: int) -> str | list[Remark]:
    """What is wrong with what is saved of this many models."""
    scope = "" if seen.looked == count else f" (only {seen.looked:,} of {count:,} were looked at in {LOOK_S:.0f} s)"
    if not seen.sound and not seen.remarks():
        return f"nothing is saved yet{scope}"
    return seen.remarks() or f"{amount(seen.sound, 'model')} can be resumed with this configuration{scope}"
