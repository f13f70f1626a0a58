"""A shop whose sums are exact in float64, an archive of its log, and models begun from that archive."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from omdml.feedback import Ranking, Triplet, encode
from omdml.learners import DCA
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.letters import DeadLetters, read_letters
from omdml.streams.memory_log import MemoryLog, MemorySink, MemorySource
from omdml.streams.placement import Placement
from omdml.streams.resent_events import resent_header
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.config import GuardConfig
from omdml.workers.configuration.specs import Specs
from omdml.workers.operate.history.archive import folder_of, put_file
from omdml.workers.operate.history.archived import find_records
from omdml.workers.operate.history.bootstrap import adopt, job_of, learned
from omdml.workers.operate.history.engines import alone
from omdml.workers.wiring.models import open_specs
from tests.support.worlds import World, configuration, living_on, placed, run_until_idle

ITEMS, DIM = 64, 6
# Offsets of a chunk: few, so that a short log has many.
SPAN = 32
SUMS = ("near", "far", "middle", "centre", "sums", "seen")
SECRET = b"7" * 32


def corners(seed: int = 0) -> np.ndarray:
    """Items (64, 6) whose numbers are 0 or 1, each as often in every column: all sums of products are exact."""
    draw = np.random.default_rng(seed)
    return np.stack([draw.permutation(np.repeat([0.0, 1.0], ITEMS // 2)) for _ in range(DIM)], axis=1)


class History(World):
    """A model of DCA on the last of three partitions, and other models' events between its own."""

    def __init__(self, folder, **options) -> None:
        super().__init__(folder, partitions=3)
        self.catalogue = build_catalogue(
            folder / "corners", {"corner": corners()}, ids=[f"i{row}" for row in range(ITEMS)]
        )
        self.name, self.folder = living_on(self, self.log.partitions[2]), folder
        self.placement = Placement.first("crc32", 3)
        model = {"learner": "dca", "coordinates": "features", "init": "coordinates", **options}
        plain = configuration(folder / "corners", {"user-*": model, "star": {**model, "parent": ""}})
        self.configuration = replace(plain, guard=GuardConfig(hold_out=8))
        placed(self)

    @property
    def home(self):
        return self.log.partitions[2]

    @property
    def spec(self):
        return Specs(self.configuration, {"items": self.catalogue}).of(self.name)

    def tell(self, count: int, seed: int = 0) -> None:
        """Triplets and rankings with ids, some of them repeated after a long time, some unreadable, refused, sent again
        or another model's."""
        draw = np.random.default_rng(seed)
        neighbour = living_on(self, self.home, skip=1)
        for turn in range(count):
            query, relevant, irrelevant = (f"i{row}" for row in draw.integers(0, ITEMS, 3))
            event = Triplet(model=self.name, query=query, relevant=relevant, irrelevant=irrelevant, at=float(turn))
            chance = draw.random()
            if chance < 0.05:
                event = replace(event, query="nobody")
            elif chance < 0.1:
                event = replace(event, model=neighbour)
            elif chance < 0.4:
                event = replace(event, id=f"click-{draw.integers(0, count)}")
            elif chance < 0.5:
                # 16 comparisons, whose weight 1 / 4 has a square root that is exact, too.
                named = tuple(f"i{row}" for row in draw.permutation(ITEMS)[:8])
                event = Ranking(model=self.name, query=query, relevant=named[:4], irrelevant=named[4:], at=float(turn))
            if chance > 0.95:
                self.log.send(b"broken", self.name)
            elif chance > 0.9:
                position = self.home, int(draw.integers(0, max(1, self.log.end(self.home))))
                self.log.send(encode(event), self.name, [resent_header(position, SECRET)])
            else:
                self.log.send(encode(event), self.name)

    def archived(self, end: int, name: str = "archive", per_file: int = 100, begin: int = 0) -> str:
        """An archive of the model's partition up to an offset."""
        records = self.log.read(self.home, begin, end - begin)
        for first in range(0, len(records), per_file):
            part = records[first : first + per_file]
            low, high = part[0].offset, part[-1].offset + 1
            put_file(folder_of(self.folder / name, self.home) / f"{low:020d}-{high:020d}.parquet", low, high, part)
        return str(self.folder / name)

    def summed(self, archive: str, engine=alone, chunks: int = 2, **options):
        """Sum up the archive; returns the learned model."""
        job = job_of(self.name, self.spec, self.configuration, open_specs, self.placement, SECRET, SPAN)
        return learned(
            job, self.spec, find_records([archive], self.home.number, None), engine, chunks=chunks, **options
        )

    def adopted(self, archive: str, store, replace: bool = False, **options):
        """Begin the model in a store from the archive."""
        model = self.summed(archive, **options).model
        adopt(model, store, self.placement, DeadLetters(MemorySink(self.graves)), "test", replace)
        return model

    def worked(self, store, group: str):
        """Let a worker of this group take everything; returns the checkpoint."""
        worker = self.worker(store=store, source=MemorySource(self.log, group))
        run_until_idle(worker)
        worker.stop()
        worker.run()
        return store.peek(self.name)

    def empty_store(self):
        store = MemoryStore(secret=SECRET)
        store.place(self.log.topic_id, None, self.placement)
        return store

    def letters_about_the_model(self):
        """Position and reason of each dead letter of the model, in order."""
        records = (record for part in self.graves.partitions for record in self.graves.read(part, 0, 100_000))
        return sorted({(letter.offset, letter.reason) for letter in read_letters(records) if letter.model == self.name})

    def empty_the_letters(self):
        """Have later letters go into a new, empty log."""
        self.graves = MemoryLog()


def sums_of(checkpoint) -> dict[str, bytes]:
    """The bytes of a checkpoint's sums, by name."""
    moments = DCA.from_bytes(checkpoint.state)._engine.moments()
    # The lower triangles do not count.
    return {name: np.triu(getattr(moments, name)).tobytes() if getattr(moments, name).ndim == 2
            else getattr(moments, name).tobytes() for name in SUMS}  # fmt: skip


def taken(checkpoint) -> dict[str, object]:
    """What a checkpoint says about the events that were taken, but not how well the model ordered them."""
    progress = checkpoint.progress
    held_out = [event[:4] for event in progress["hold_out"]["kept"]]
    return {
        "position": (checkpoint.home, checkpoint.next),
        "version": checkpoint.version,
        "event_time": checkpoint.event_time,
        "held_out": (progress["hold_out"]["count"], progress["hold_out"]["secret"], held_out),
        "seen": progress["seen"],
        "stretches": progress["stretches"],
        "tally": progress["tally"],
    }
