"""How this omdml writes and reads a sample of each format, and how a sample gets another number."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from safetensors.numpy import load, save

from omdml import DCA, LEARNERS, formats
from omdml import snapshot as packing
from omdml.coordinates import CoordinateMap
from omdml.errors import FeedbackError
from omdml.formats import Format
from omdml.learners import Learner
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.catalogues.building.build import build_catalogue
from omdml.streams.catalogues.changes.change import Change
from omdml.streams.catalogues.folder import MANIFEST, MappedCatalogue
from omdml.streams.catalogues.items import Items
from omdml.streams.describers.describer import Describer, PictureDescriber
from omdml.streams.describers.words import Words
from omdml.streams.files.group_state import Committed, GroupState
from omdml.streams.files.segments import SegmentedLog
from omdml.streams.letters import Dismissed, Letter, Resent, read_book
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.loading import load as configured
from omdml.workers.configuration.specs import Specs
from omdml.workers.model.claim import claim
from tests.formats import shapes
from tests.formats.stores import (
    PARTITION,
    read_folder,
    read_rows,
    renumber_folder,
    renumber_rows,
    shape_of_rows,
    write_folder,
    write_rows,
)
from tests.support import worlds
from tests.support.learning.learner_samples import comparisons, learn, small_learner

HERE = Path(__file__).parent


class Sample(NamedTuple):
    """A format, and the functions that write a folder of files in it, read such a folder, and change its number."""

    format: Format
    write: Callable[[Path], None]
    read: Callable[[Path], object]
    renumber: Callable[[Path, int], None]
    shape: Callable[[Path], Any] = shapes.of_folder
    # Whether there is a file of each learner.
    of_learners: bool = False

    @property
    def name(self) -> str:
        """The beginning of the names of the samples' folders."""
        return self.format.what.replace(" ", "-")

    def kept(self) -> dict[int, Path]:
        """The folders of the committed samples, by their numbers."""
        folders = HERE.glob(f"{self.name}-[0-9]*")
        return {int(folder.name.removeprefix(f"{self.name}-")): folder for folder in folders}

    def missing(self) -> list[str]:
        """The files of learners that the samples of this number lack, if they have one of each learner."""
        folder = self.kept().get(self.format.number)
        names = [f"{learner}.safetensors" for learner in sorted(LEARNERS)] if self.of_learners else []
        return [name for name in names if folder and not (folder / name).exists()]


def renumber_tensors(folder: Path, number: int) -> None:
    """Give every safetensors file another number, under a checksum that fits."""
    for path in folder.iterdir():
        data = path.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        metadata = msgspec.json.decode(header["__metadata__"][packing.KEY])
        others = {name: value for name, value in metadata.items() if name not in ("format", "sha256", "check")}
        tensors = load(data)
        files = packing.FILES if path.suffix == ".checkpoint" else ()
        path.write_bytes(packing.pack(tensors, others, Format("renumbered", number), packing.digest(tensors, files)))
        assert save(load(path.read_bytes()))


def in_json(name: str) -> Callable[[Path, int], None]:
    """Give the first line of JSON in this file another number."""

    def renumber(folder: Path, number: int) -> None:
        first, *others = (folder / name).read_text().splitlines()
        (folder / name).write_text("\n".join([json.dumps({**json.loads(first), "format": number}), *others]) + "\n")

    return renumber


def learned() -> Iterable[Learner]:
    """A model of each learner, in the middle of a block of events."""
    for name in sorted(LEARNERS):
        model = small_learner(name)
        learn(model, *comparisons(name), end=21)
        yield model


def with_parent() -> DCA:
    """A DCA model that began with the metric that another model served."""
    parent, child = small_learner("dca"), small_learner("dca")
    learn(parent, *comparisons("dca"), end=40)
    learn(child, *comparisons("dca"), end=0)
    assert isinstance(child, DCA)
    child.begin_from(parent.metric, parent.version)
    learn(child, *comparisons("dca"), end=21)
    return child


def sums_of_items() -> Learner:
    """A DCA model with as many principal coordinates as an item has numbers, after the end of a block."""
    model = small_learner("dca", rank=11)
    learn(model, *comparisons("dca"), end=80)
    return model


def write_states(folder: Path) -> None:
    for model in learned():
        (folder / f"{model.name}.safetensors").write_bytes(model.to_bytes())
    (folder / "dca-sums-of-items.safetensors").write_bytes(sums_of_items().to_bytes())
    (folder / "dca-with-parent.safetensors").write_bytes(with_parent().to_bytes())


def read_states(folder: Path) -> None:
    """Check that a state of each learner goes on learning."""
    for path in sorted(folder.iterdir()):
        model = Learner.from_bytes(path.read_bytes())
        learn(model, *comparisons(model.name, 40))


def write_snapshots(folder: Path) -> None:
    """Write the snapshot that a node gets of each learner."""
    for model in learned():
        snapshot = Snapshot(
            model="shop", learner=model.name, version=21, generation="g", event_time=5.5, oldest_event_time=5.0,
            progress={"mistake_rate": 0.5, "recent_mistake_rate": 0.5}, metric=model.metric,
        )  # fmt: skip
        (folder / f"{model.name}.safetensors").write_bytes(snapshot.to_bytes())


def read_snapshots(folder: Path) -> None:
    """Check that each snapshot can be read."""
    for path in sorted(folder.iterdir()):
        assert Snapshot.from_bytes(path.read_bytes()).metric.dims


def guarded(folder: Path) -> worlds.World:
    """A world whose model holds every other event out, so that its checkpoint holds something of everything."""
    place = worlds.World(folder)
    place.store = MemoryStore(secret=b"7" * 32)
    place.configuration = configured(
        None,
        {},
        {
            "catalogues": {"items": {"path": str(folder / "items")}},
            "models": {"shop": {"learner": "lomdml", "rank": 3}},
            "guard": {"hold_out": 2},
        },
    )
    return place


def write_checkpoint(folder: Path) -> None:
    """Write the checkpoint that a worker saved after 60 events."""
    with tempfile.TemporaryDirectory() as other:
        place = guarded(Path(other))
        place.send(*worlds.events(60))
        worker = place.worker()
        worker.step()
        next(iter(worker.partitions.values())).saving.save()
        checkpoint = place.store.peek("shop")
    assert checkpoint
    (folder / "shop.checkpoint").write_bytes(checkpoint.to_bytes())


def read_checkpoint(folder: Path) -> None:
    """Check that a worker goes on from it, with the events that it held out."""
    checkpoint = Checkpoint.from_bytes((folder / "shop.checkpoint").read_bytes())
    with tempfile.TemporaryDirectory() as other:
        place = guarded(Path(other))
        place.store.save(checkpoint, place.store.claim("shop").epoch)
        spec = Specs(place.configuration, {"items": place.catalogue}).find("shop")
        assert spec
        model = claim("shop", spec, place.store, "test").model
    held_out = [worlds.is_held_out(b"7" * 32, "shop", 0, offset, every=2) for offset in range(60)]
    assert (model.learner.version, model.progress.hold_out.count) == (held_out.count(False), held_out.count(True))
    assert 0 < len(model.progress.hold_out.kept) <= held_out.count(True)


def small_catalogue(folder: Path) -> MappedCatalogue:
    """Items, sets and a map of coordinates."""
    features, ids = {name: x[:12] for name, x in worlds.items()[0].items()}, [f"i{row}" for row in range(12)]
    sets = {f"s{item}": [item, other] for item, other in zip(ids, reversed(ids), strict=True)}
    return build_catalogue(folder, features, ids=ids, sets=sets, mapped=True)


def write_catalogue(folder: Path) -> None:
    """Write a catalogue with every kind of change."""
    make_changes(small_catalogue(folder))


NEW = {"shape": [0.5] * 9, "noise": [0.25] * 5}


def make_changes(catalogue: Items) -> None:
    """Put a new item with attributes, and again without; change an old item's attributes; add a third and delete it."""
    for changes in (
        [Change(id="new", features=NEW, attributes={"price": 4, "tags": ["red"]}), Change(id="gone", features=NEW)],
        [Change(id="new", features=NEW), Change(id="gone", delete=True), Change(id="i1", attributes={"price": 2.5})],
    ):
        catalogue.change([catalogue.prepare(changes)])


def check_changes(catalogue: Items) -> None:
    """Check that the changes are there."""
    assert catalogue.shown[:2] == (15, 2)
    assert (catalogue.rows(["new", "gone", "i1"]).tolist(), catalogue.shown.position) == ([14, -1, 1], 5)
    assert catalogue.attributes == {"new": {"price": 4, "tags": ["red"]}, "i1": {"price": 2.5}}


def read_catalogue(folder: Path) -> None:
    """Check that every vector is intact."""
    catalogue = MappedCatalogue(folder)
    catalogue.verify()
    check_catalogue(catalogue)


def check_catalogue(catalogue: Items) -> None:
    """Check that everything is there; the first format had no maps, and the second no changes."""
    assert len(catalogue.sets) in (12, worlds.ITEMS)
    assert len(catalogue.ids) in (12, 15, worlds.ITEMS)
    if len(catalogue.sets) == 12:
        assert [x.shape[1] for x in catalogue.in_coordinates("mapped").features.values()] == [11]
    if catalogue.manifest.format == formats.CATALOGUE.number == formats.REDIS_CATALOGUE.number:
        check_changes(catalogue)


def write_map(folder: Path) -> None:
    """Write a small map of coordinates."""
    features = {name: x.astype(np.float32) for name, x in worlds.items()[0].items()}
    (folder / "map.safetensors").write_bytes(CoordinateMap.fit(features, landmarks=5, coordinates=4).to_bytes())


def read_map(folder: Path) -> None:
    """Check that the map maps vectors."""
    fitted = CoordinateMap.from_bytes((folder / "map.safetensors").read_bytes())
    assert fitted.apply(worlds.items()[0]).shape == (worlds.ITEMS, 4)


def write_describer(folder: Path) -> None:
    """Write a describer of pictures and texts."""
    texts = ["red mug", "blue mug", "red shirt", "a large blue shirt"]
    describer = Describer(PictureDescriber(["color-1", "edges-1"], None), {"description": Words.fit(texts)})
    (folder / "describer.safetensors").write_bytes(describer.to_bytes())


def read_describer(folder: Path) -> None:
    """Check that the describer describes a picture and a text."""
    describer = Describer.from_bytes((folder / "describer.safetensors").read_bytes())
    assert describer.modalities == ["color", "edges", "description"]
    assert describer.words({"description": "mugs"})["description"].shape == (describer.texts["description"].dim,)


def group_state(folder: Path) -> GroupState:
    """The state of the group ``omdml`` of a log whose identity is known."""
    (folder / "log.id").write_text(f"{PARTITION.topic_id}\n")
    return GroupState(SegmentedLog(folder), "omdml")


def write_commit(folder: Path) -> None:
    group_state(folder).write(Committed(PARTITION.topic_id, 1 << 40 | 99, "0" * 64))


def read_commit(folder: Path) -> None:
    """Check that the position is the committed one."""
    committed = group_state(folder).read()
    assert committed
    assert (committed.offset, committed.fingerprint) == (1 << 40 | 99, "0" * 64)


PLACED = Placement.first("crc32", 2).grown(4, {0: 7, 1: 9})


def write_placement(folder: Path) -> None:
    """Write a placement of models after a rehome."""
    (folder / "placement.json").write_bytes(PLACED.encode())


def read_placement(folder: Path) -> None:
    """Check that the placement is the written one."""
    assert Placement.decode((folder / "placement.json").read_bytes(), "here") == PLACED


def write_letters(folder: Path) -> None:
    """Write letters with all fields, with few and with a cut payload, and marks of one sent again and one dismissed."""
    error = FeedbackError("no such item", reason="unknown_item")
    records = [
        Record(PARTITION, 1, b'{"type":"triplet"}', b"shop", 5.5, (("content-type", b"application/json"),)),
        Record(PARTITION, 2, b"\xff\xfe", b"\xff", None, (("trace", b"\xff"),)),
        Record(PARTITION, 3, b"x" * 2000),
    ]
    lines = [
        Letter.of(records[0], error, "shop"),
        Letter.of(records[1], FeedbackError("no JSON", reason="not_json")),
        Letter.of(records[2], FeedbackError("too large", reason="oversize")),
        Resent((PARTITION, 1)),
        Dismissed((PARTITION, 2)),
    ]
    (folder / "letters.jsonl").write_bytes(b"".join(line.encode() + b"\n" for line in lines))


def read_letters(folder: Path) -> None:
    """Check all letters, and which was sent again or dismissed; the first format had no dismissals."""
    lines = (folder / "letters.jsonl").read_bytes().splitlines()
    book = read_book(Record(Partition("letters", 0), offset, line) for offset, line in enumerate(lines))
    letters = book.letters
    assert [offset for _, offset in letters] == [1, 2, 3]
    assert letters[PARTITION, 1].payload == b'{"type":"triplet"}'
    assert letters[PARTITION, 2].headers == (("trace", b"\xff"),)
    assert letters[PARTITION, 3].digest
    assert book.resent == {(PARTITION, 1)}
    assert book.dismissed == ({(PARTITION, 2)} if any(b'"dismissed"' in line for line in lines) else set())


SAMPLES = [
    Sample(formats.STATE, write_states, read_states, renumber_tensors, of_learners=True),
    Sample(formats.CHECKPOINT, write_checkpoint, read_checkpoint, renumber_tensors),
    Sample(formats.SNAPSHOT, write_snapshots, read_snapshots, renumber_tensors, of_learners=True),
    Sample(formats.CATALOGUE, write_catalogue, read_catalogue, in_json(MANIFEST)),
    Sample(formats.MAP, write_map, read_map, renumber_tensors),
    Sample(formats.DESCRIBER, write_describer, read_describer, renumber_tensors),
    Sample(formats.FOLDER_STORE, write_folder, read_folder, renumber_folder),
    Sample(formats.TRANSACTIONAL_STORE, write_rows, read_rows, renumber_rows, shape_of_rows),
    Sample(formats.PLACEMENT, write_placement, read_placement, in_json("placement.json")),
    Sample(formats.COMMIT, write_commit, read_commit, in_json("omdml.commit")),
    Sample(formats.LETTER, write_letters, read_letters, in_json("letters.jsonl")),
]
