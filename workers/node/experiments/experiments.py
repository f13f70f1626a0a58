"""Which searches an experiment has, and how they are answered: team draft interleaving of two answers."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import msgspec

from omdml.retrieval.interleaving import team_draft, verdict
from omdml.workers.configuration.config import ExperimentConfig
from omdml.workers.node.experiments.tally import Counts, ExperimentTally
from omdml.workers.node.searching.answers import Answer, Interleaved

DIGEST_BYTES = 8
WHOLE = 1 << 8 * DIGEST_BYTES


class Sides(NamedTuple):
    """The answers of both rankings to one search, each from its first item on."""

    own: Answer
    other: Answer


class Outcome(msgspec.Struct, frozen=True):
    """An experiment and its result. ``first`` is the model's own ranking, ``second`` the other one.

    ``better`` is ``first``, ``second``, or null if neither is surely better. Of the searches that one of the rankings
    won, the second won the ``share``. ``low`` and ``high`` are the ends of its confidence interval.
    """

    name: str
    model: str
    against: str
    against_version: int | None
    searched_share: float
    kept: bool
    counts: Counts
    better: str | None
    share: float | None
    low: float
    high: float
    confidence: float


class Experiment:
    """One experiment; raises ConfigurationError if its counts cannot be read."""

    def __init__(self, name: str, config: ExperimentConfig) -> None:
        self.name, self.config = name, config
        self.tally = ExperimentTally(Path(config.counts) if config.counts else None)

    def takes(self, session: str) -> bool:
        """Whether the searches of a session are interleaved: all of them are, or none."""
        return number(f"{self.name} {session}") < self.config.share * WHOLE

    def mixed(self, session: str, query: bytes, sides: Sides, k: int, offset: int) -> Answer:
        """One answer out of both, from ``offset`` on, remembered for the clicks to come.

        The same session gets the same order for the same query, as long as neither side answers it otherwise.
        """
        search = f"{self.name}:{number(f'{self.name} {session} {query.hex()}'):0{2 * DIGEST_BYTES}x}"
        lists = [[entry.id for entry in side.items] for side in sides]
        drafted = team_draft(lists[0], lists[1], offset + k, search.encode())
        self.tally.shown(search, drafted[offset:])
        items_of = [{entry.id: entry for entry in side.items} for side in sides]
        return msgspec.structs.replace(
            sides.own,
            items=[items_of[team][item] for item, team in drafted[offset:]],
            took_s=sides.own.took_s + sides.other.took_s,
            interleaved=Interleaved(self.name, search, sides.other.model, sides.other.version),
        )

    @property
    def outcome(self) -> Outcome:
        """The result so far."""
        counts = self.tally.counts
        return Outcome(
            name=self.name,
            model=self.config.model,
            against=self.config.against or self.config.model,
            against_version=self.config.against_version,
            searched_share=self.config.share,
            kept=bool(self.config.counts),
            counts=counts,
            **verdict(counts.first, counts.second).named(),
        )


class Experiments:
    """The experiments of one node, by name."""

    def __init__(self, configured: Mapping[str, ExperimentConfig]) -> None:
        self.all = {name: Experiment(name, config) for name, config in configured.items()}
        self._of_model = {experiment.config.model: experiment for experiment in self.all.values()}

    def of(self, model: str, session: str) -> Experiment | None:
        """The experiment that takes a session's searches of a model; None if there is none."""
        experiment = self._of_model.get(model)
        return experiment if experiment and experiment.takes(session) else None

    def of_search(self, search: str) -> Experiment | None:
        """The experiment that a search belongs to."""
        return self.all.get(search.rpartition(":")[0])

    def close(self) -> None:
        """Write the counts of those experiments that keep them in a file."""
        for experiment in self.all.values():
            experiment.tally.write()


def number(text: str) -> int:
    """A number below 2^64 that looks random, and is the same for the same text on every node."""
    return int.from_bytes(blake2b(text.encode(), digest_size=DIGEST_BYTES).digest(), "big")
