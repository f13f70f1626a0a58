"""Small worlds for tests: items in clusters, feedback about them, and everything that a worker needs, in memory."""

from __future__ import annotations

import atexit
import hashlib
import inspect
import itertools
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from omdml import LEARNERS, LOMDML
from omdml.builders import from_labels
from omdml.errors import FeedbackError, StoreError
from omdml.feedback import ONLY_TASK, AnyFeedback, Pair, Quadruplet, SetJudgement, Triplet, decode, encode
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.folder import MappedCatalogue
from omdml.streams.kafka.reading import gap
from omdml.streams.letters import DeadLetters, read_letters
from omdml.streams.memory_log import MemoryLog, MemorySink, MemorySource
from omdml.streams.partitioners import by_crc32
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Record
from omdml.streams.stores.memory import MemoryStore
from omdml.streams.topic_extents import Extent
from omdml.workers.configuration.config import Configuration, FileLog, WorkerConfig
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.learning.metrics import WorkerMetrics
from omdml.workers.learning.services import Services
from omdml.workers.learning.worker import LearnerWorker
from omdml.workers.operate import topics
from omdml.workers.operate.replay import read_whole
from omdml.workers.wiring.feedback_log import open_ungrouped
from tests.support.learning.restored_stores import kept_checkpoints, put_checkpoints

ITEMS = 120
DIMS = {"shape": 9, "noise": 5}
TASKS = ("one", "other")
# An interval in seconds that no test lives to see the end of.
NEVER = 1e9


def items(seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Features, and labels. One modality shows the label, and the other is noise."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 4, ITEMS)
    centres = draw.normal(0, 1, (4, DIMS["shape"]))
    shape = centres[labels] + draw.normal(0, 0.6, (ITEMS, DIMS["shape"]))
    return {"shape": shape, "noise": draw.normal(0, 1, (ITEMS, DIMS["noise"]))}, labels


def catalogue(folder, seed: int = 0, mapped: bool = False) -> MappedCatalogue:
    """These items as a catalogue: ids ``i0`` to ``i119``, and sets of two of one label each, ``s0`` to ``s119``.

    Each of them is built once in a process, and copied from then on: the same items always give the same files.
    """
    if not Path(folder, "catalogue.json").exists():
        shutil.copytree(_built(seed, mapped), folder, dirs_exist_ok=True)
    return MappedCatalogue(folder)


@cache
def _built(seed: int, mapped: bool) -> Path:
    """Build a catalogue that is copied from then on. Its folder is removed at the end of this process."""
    place = tempfile.TemporaryDirectory(prefix="omdml-catalogue-")
    atexit.register(place.cleanup)
    features, labels = items(seed)
    sets = {}
    for label in range(4):
        rows = np.flatnonzero(labels == label)
        sets |= {f"s{row}": [f"i{row}", f"i{other}"] for row, other in zip(rows, np.roll(rows, 1), strict=True)}
    target = Path(place.name) / "items"
    build_catalogue(target, features, ids=[f"i{row}" for row in range(ITEMS)], sets=sets, mapped=mapped)
    return target


def triplets(count: int, seed: int = 0) -> np.ndarray:
    """Random triplets (count, 3) by label."""
    return from_labels(items()[1], count, seed)


def is_held_out(secret: bytes, model: str, partition: int, offset: int, every: int = 50) -> bool:
    """Whether an event of a model at this position is held out, by the documented rule."""
    position = partition.to_bytes(4, "big") + offset.to_bytes(8, "big")
    return (
        int.from_bytes(hashlib.blake2b(model.encode() + position, digest_size=8, key=secret).digest(), "big") % every
        == 0
    )


def not_held_out(records: Iterable[Record], secret: bytes, model: str = "shop", every: int = 50) -> np.ndarray:
    """The triplets (n, 3) of a log that a model under a guard learns, in order."""
    rows = []
    for record in records:
        with suppress(FeedbackError):
            event = decode(record.value)
            named = [item.removeprefix("i") for item in (event.query, event.relevant, event.irrelevant)]
            position = record.partition.number, record.offset
            if (
                event.model == model
                and all(map(str.isdigit, named))
                and not is_held_out(secret, model, *position, every)
            ):
                rows.append([int(item) for item in named])
    return np.array(rows, np.int64).reshape(-1, 3)


def records_of(file: Path) -> list[Record]:
    """The log of a configuration file."""
    log = load(str(file), {}, {}).log
    if isinstance(log, FileLog):
        log = replace(log, path=str(file.parent / log.path))
    return [record for records in read_whole(open_ungrouped(log)) for record in records]


def learned_of(file: Path, secret: bytes, model: str = "shop") -> np.ndarray:
    """The triplets that a model learns from the log of a configuration file."""
    return not_held_out(records_of(file), secret, model)


def events(count: int, seed: int = 0, model: str = "shop") -> Iterator[bytes]:
    """Encoded triplet events about the world's items."""
    for query, relevant, irrelevant in triplets(count, seed).tolist():
        yield encode(
            Triplet(model=model, query=f"i{query}", relevant=f"i{relevant}", irrelevant=f"i{irrelevant}", at=1.0)
        )


def feedback(
    kind: str, count: int, seed: int = 0, model: str = "shop", tasks: Sequence[str] = TASKS
) -> Iterator[AnyFeedback]:
    """Feedback of any kind: quadruplets with several margins, pairs of two tasks, sets of one or two."""
    for turn, (q, r, s) in enumerate(triplets(count, seed).tolist()):
        query, relevant, irrelevant = f"i{q}", f"i{r}", f"i{s}"
        if kind == "triplet":
            yield Triplet(model=model, query=query, relevant=relevant, irrelevant=irrelevant)
        elif kind == "quadruplet":
            yield Quadruplet(model=model, near=(query, relevant), far=(irrelevant, query), margin=0.5 + turn % 2)
        elif kind == "pair":
            right, task = (relevant, irrelevant)[turn % 2], tasks[turn % 3 % 2]
            yield Pair(model=model, left=query, right=right, similar=turn % 2 == 0, task=task)
        else:
            yield SetJudgement(model=model, query=(query,), relevant=(relevant, f"s{r}"), irrelevant=(f"s{s}",))


def tasks_of(learner: str) -> Sequence[str]:
    """The tasks in pairs for this learner, for :func:`feedback`: TASKS if the learner has tasks."""
    return TASKS if "tasks" in inspect.signature(LEARNERS[learner]).parameters else (ONLY_TASK, ONLY_TASK)


def configuration(folder, models=None, **options) -> Configuration:
    """One catalogue, and these models: by default ``shop``, and a pattern, ``user-*``. Every event is learned."""
    models = models or {"shop": {"learner": "lomdml", "rank": 3, **options}, "user-*": {"learner": "lomdml", "rank": 2}}
    return load(None, {}, {"catalogues": {"items": {"path": str(folder)}}, "models": models, "guard": {"on": False}})


class World:
    """A log, a store and a clock that tests move; workers come and go."""

    def __init__(self, folder, partitions: int = 1, models=None, mapped: bool = False, **options) -> None:
        self.catalogue = catalogue(folder / "items", mapped=mapped)
        self.configuration = configuration(folder / "items", models, **options)
        self.log, self.graves = MemoryLog(partitions), MemoryLog()
        # Always the same events are held out.
        self.store = MemoryStore(secret=b"7" * 32)
        self.now = itertools.count().__next__

    def send(self, *payloads: bytes, key: str = "shop") -> None:
        for payload in payloads:
            self.log.send(payload, key)

    def worker(self, store=None, source=None, accept_gap=False, registry=None) -> LearnerWorker:
        """A new worker on the same log and store. Its clock goes on by a second at every look."""
        services = Services(
            store=store or self.store,
            source=source or MemorySource(self.log),
            letters=DeadLetters(MemorySink(self.graves)),
            specs=Specs(self.configuration, {"items": self.catalogue}),
            metrics=WorkerMetrics(registry or CollectorRegistry()),
            platform="test",
            clock=lambda: float(self.now()),
            accept_gap=accept_gap,
        )
        return LearnerWorker(services, WorkerConfig())


def run_until_idle(worker, turns=50):
    """Take turns until nothing is waiting."""
    for _ in range(turns):
        worker.step()


def stop(worker):
    """Have a worker learn what there is, save and end."""
    run_until_idle(worker)
    worker.stop()
    worker.run()


def paced(worker, publish=0.02, save=1.0):
    """Set how often a worker publishes and saves; returns it."""
    worker.schedule.config = WorkerConfig(publish_interval_s=publish, checkpoint_interval_s=save)
    worker.schedule.due_at = worker.schedule.saved_at = 0.0
    return worker


def kill(world, worker):
    """Take its partitions away without letting it save or report anything, as a kill does."""
    world.log.expel(worker.services.source)


def refuse(*_, **__):
    """Raise StoreError, as a store that is out of reach does."""
    raise StoreError("store memory: away")


def mark(world, partition=0):
    """The mark of a partition, at which the next worker begins."""
    return world.store.marks(world.log.partitions).get(world.log.partitions[partition])


def damage(world, model):
    """Cut the end off every checkpoint of a model; returns the checkpoints as they were."""
    sound = kept_checkpoints(world.store, model)
    put_checkpoints(world.store, model, [(saved, data[:-9]) for saved, data in sound])
    return sound


def damage_newest(world, model):
    """Cut the end off the newer checkpoint of a model."""
    (saved, data), *older = kept_checkpoints(world.store, model)
    put_checkpoints(world.store, model, [(saved, data[:-9]), *older])


def unreadable(folder, *names):
    """A world in which a worker learned ten events of each model and was killed; the first can then not be read.

    Answers the world, and the checkpoints of that model as they were.
    """
    world = World(folder)
    first = world.worker()
    for name in reversed(names):
        world.send(*events(10, model=name))
    run_until_idle(first)
    kill(world, first)
    return world, damage(world, names[0])


def extents(world):
    """The extents of all partitions, as ``omdml topics`` reads them from Kafka."""
    committed = world.log.group("omdml").committed
    return [
        Extent(partition, world.log.start(partition), world.log.end(partition), committed.get(partition))
        for partition in world.log.partitions
    ]


def rehomed(world, count=None, senders_go_on=False):
    """Rehome models, as ``omdml topics rehome`` does; returns how many partitions they lived on, and live on now."""
    return topics.rehome(extents(world), world.store, count, senders_go_on)[:2]


def placed(world):
    """Record where models live, as the first worker does."""
    world.store.place(world.log.topic_id, None, Placement.first("crc32", len(world.log.partitions)))


def living_on(world, partition, skip=0):
    """The name of a model that lives on this partition, after ``skip`` others."""
    names = (name for name in map("user-{}".format, range(1000)) if world.log.home(name) == partition)
    return next(itertools.islice(names, skip, None))


def other_than(world, name):
    """A partition that a model does not live on."""
    return next(partition for partition in world.log.partitions if partition != world.log.home(name))


def whole_log(world):
    """Every record of the log, partition by partition."""
    return [record for partition in world.log.partitions for record in world.log.read(partition, 0, 100_000)]


def letters(world):
    return list(read_letters(record for part in world.graves.partitions for record in world.graves.read(part, 0, 1000)))


def learned_directly(world, count):
    """What a learner makes of the same events without any worker."""
    model = LOMDML(dims=dict(world.catalogue.dims), rank=3)
    model.learn_many(triplets(count), world.catalogue.features)
    return model


def checking_ends(world, partition):
    """A source that raises if it is to read a partition behind its end, as a client of Kafka does."""
    source = MemorySource(world.log)
    poll = source.poll

    def checked(*arguments):
        position = source._positions.get(partition)
        if position is not None and position > world.log.end(partition):
            raise gap.out_of_range("feedback", partition, position, (0, world.log.end(partition)))
        return poll(*arguments)

    source.poll = checked
    return source


def learned_on_two(folder):
    """A model that learned 5 events on partition 0 of two, its worker, and two new partitions that it is to move to."""
    world = World(folder, partitions=2)
    names = (name for name in map("user-{}".format, range(1000)) if by_crc32(name.encode(), 2) == 0)
    model = next(name for name in names if by_crc32(name.encode(), 4) == 2)
    world.send(*events(5, model=model), key=model)
    worker = world.worker()
    run_until_idle(worker)
    world.log.add_partitions(2)
    return world, worker, model
