"""Steps 6 to 9 of the protocol: writes the letters of one partition, then moves its mark and its commit.

``advance`` does these steps after each round of saving (workers/learning/schedule.py). ``save`` does steps 4 and 5
before them, for a partition that is given up or a worker that stops.
"""

from __future__ import annotations

import math

from omdml.streams.protocols.log import CommitResult, Partition
from omdml.workers.learning.partition.models import OwnedModels
from omdml.workers.learning.partition.pending_letters import PendingLetters
from omdml.workers.learning.partition.portions import portions
from omdml.workers.learning.partition.waiting_models import WaitingModels
from omdml.workers.learning.partition.watermark import Mark
from omdml.workers.learning.services import Services


class Saving:
    """Saves what one partition took. workers/learning/partition/owned_partition.py lists the steps.

    Attributes
    ----------
    committed
        The offset that this owner committed last.
    """

    def __init__(
        self,
        partition: Partition,
        services: Services,
        models: OwnedModels,
        mark: Mark,
        letters: PendingLetters,
        waiting: WaitingModels,
    ) -> None:
        self.committed: int | None = None
        self._partition, self._services = partition, services
        self._models, self._mark = models, mark
        self._letters, self._waiting = letters, waiting

    def save(self, untaken: int | None = None, commit: bool = True, until: float = math.inf) -> None:
        """Save everything that was taken, then move mark and commit.

        Parameters
        ----------
        untaken
            Offset of the first record that was polled and not taken, if there is one.
        commit
            False inside a rebalance, when a client cannot commit. The next owner starts at min(mark, commit).
        until
            Clock time after which no further model is saved. The mark then stays below the events that are not saved.

        New versions are published before they are saved: the next owner skips their events, so it would not publish.
        Raises Fenced, PlacementChanged, StoreChanged, StoreError or SourceError; then nothing was committed.
        """
        self._letters.flush(until - self._services.clock())
        changed = list({**self._models.unsaved, **self._models.unpublished}.values())
        for models in portions(changed):
            self._models.keep(models)
            if self._services.clock() >= until:
                break
        self.advance(untaken, commit)

    def advance(self, untaken: int | None, commit: bool = True) -> None:
        """Move mark and commit to the end of what is in checkpoints. Parameters and errors: see :meth:`save`."""
        position = self._mark.taken if untaken is None else untaken
        progress = self._services.source.progress() if untaken is None and commit else {}
        if self._partition in progress:
            # The log's own position also passes offsets that hold no event.
            position, _ = progress[self._partition]
        needed_from = [*self._waiting.offsets.values()]
        needed_from += [model.unsaved_from for model in self._models.unsaved.values()]
        if position is not None:
            needed_from.append(position)
        self._letters.flush()
        self._mark.move(min(needed_from, default=None))
        offset = self._mark.offset
        if not commit or offset is None or offset == self.committed:
            return
        # If this fails, the commit stays behind the mark, and every model skips what is read again.
        if self._services.source.commit({self._partition: offset}) is CommitResult.RECORDED:
            self.committed = offset
