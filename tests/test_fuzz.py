"""Any bytes that decoders and loaders are given end in an answer or in one of our errors: tests under hypothesis.

``make fuzz`` drives these very tests by coverage (:mod:`tests.fuzz`); what it finds, hypothesis replays here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import re
import tempfile
import tomllib
from pathlib import Path

import msgspec
import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from omdml import LEARNERS
from omdml.errors import CatalogueError, ConfigurationError, CorruptError, FeedbackError
from omdml.feedback import MESSAGEPACK, decode, encode
from omdml.learners import Learner
from omdml.letter_reasons import REASONS
from omdml.snapshot import Checkpoint, Snapshot, pack, unpack
from omdml.streams.catalogues.folder import MANIFEST, MappedCatalogue
from omdml.streams.catalogues.manifest import IDS, MAP, SETS
from omdml.streams.memory_log import MemoryLog
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import sort_out
from omdml.workers.model.claim import claim
from tests.support import worlds
from tests.support.files.damage import altered, altered_arrays, damaged, raises_at_most
from tests.support.learning.learner_samples import DIMS, comparisons, learn, small_learner
from tests.support.processes import ROOT

BOTH = ("application/json", MESSAGEPACK)
NAMES = sorted(LEARNERS)
fuzzed = settings(deadline=None, suppress_health_check=list(HealthCheck))
# The model that each kind of event is about. It does not accept the pair.
ABOUT = {"triplet": "shop", "quadruplet": "user-1", "pair": "shop", "set": "photo-1"}
EVENTS = [encode(event) for kind, model in ABOUT.items() for event in worlds.feedback(kind, 2, model=model)]
EVENTS.append(b'{"type":"ranking","model":"user-7","query":"i1","relevant":["i2","i3"],"irrelevant":["i4"],"at":5.0}')
EVENTS.append(
    b'{"type":"page","model":"user-7","query":"i1","shown":["i2","i3","i4"],"clicked":["i3"],"positions":[1,2,4]}'
)
EVENTS.append(
    b'{"type":"triplet","model":"shop","query":"i1","relevant":"new","irrelevant":"i2","features":{"new":'
    b'{"shape":[1,2,3,4,5,6,7,8,9],"noise":[1,-2,3e8,4,5]}}}'
)


@functools.cache
def world() -> worlds.World:
    """Items, and models of several kinds that feedback is about."""
    with tempfile.TemporaryDirectory() as folder:
        models = {
            "shop": {"learner": "lomdml", "rank": 2},
            "user-*": {"learner": "qwise"},
            "photo-*": {"learner": "setnet", "rank": 3},
        }
        return worlds.World(Path(folder), models=models)


def turned(payload: bytes, content_type: str) -> bytes:
    """An event's JSON as it travels under this content type; as it is if MessagePack cannot hold its numbers."""
    with raises_at_most(OverflowError):
        return payload if content_type == BOTH[0] else msgspec.msgpack.encode(msgspec.json.decode(payload))
    return payload


packed = st.sampled_from(BOTH).flatmap(
    lambda kind: st.tuples(damaged([turned(event, kind) for event in EVENTS]), st.just(kind))
)
meant = st.tuples(
    st.sampled_from(EVENTS).map(msgspec.json.decode).flatmap(altered).map(msgspec.json.encode), st.sampled_from(BOTH)
).map(lambda drawn: (turned(*drawn), drawn[1]))


@fuzzed
@given(st.lists(packed | meant, min_size=1, max_size=4))
def test_every_event_is_learned_or_becomes_a_dead_letter(sent):
    place = world()
    place.log, place.store, place.graves = MemoryLog(), MemoryStore(), MemoryLog()
    for payload, content_type in sent:
        place.log.send(payload, "shop", [("content-type", content_type.encode())])
    place.send(EVENTS[0])
    worker = place.worker()
    worker.step()
    (partition,) = worker.partitions.values()
    partition.saving.save()
    refused = worlds.letters(place)
    taken = sum(model.learner.version + model.progress.hold_out.count for model in partition.models.loaded.values())
    assert partition.mark.offset == len(sent) + 1
    assert {letter.reason for letter in refused} <= REASONS.keys()
    assert len({letter.offset for letter in refused}) == len(refused)
    # An event of several comparisons counts several times.
    assert taken + len(refused) >= len(sent) + 1


@fuzzed
@given(packed)
def test_what_decodes_as_an_event_survives_the_wire(sent):
    payload, content_type = sent
    with raises_at_most(FeedbackError):
        event = decode(payload, content_type)
        assert decode(encode(event, content_type), content_type) == event


SAMPLE = (ROOT / "deploy" / "omdml.toml").read_bytes()
SAMPLES = [SAMPLE, re.sub(rb"(?m)^# (?=\S+ = |\[)", b"", SAMPLE), b'[models.m]\ngroups = {a = [0, 1]}\ntasks = ["one"]']
variables = st.dictionaries(
    st.sampled_from(
        ["STORE__URL", "MODELS__shop__RANK", "LOG__KIND", "LOG", "MODELS__x", "NODE__BIND", "X__Y", "LOG_PATH"]
    )
    | st.text(max_size=8),
    st.text(max_size=12) | st.sampled_from(["[1, 2]", "{a = 1}", "10000000000000000000000", "nan", "-1", "dir:state"]),
    max_size=3,
).map(lambda named: {f"OMDML_{name}": value for name, value in named.items()})


def check_that_it_can_be_used(configuration: Configuration) -> None:
    """Do what every command does with a configuration."""
    repr(configuration)
    for name, model in configuration.models.items():
        assert configuration.match(name) == (name, model)
        model.digest()


@fuzzed
@given(damaged(SAMPLES), variables)
@example(b"a = " + b"[" * 5000, {"OMDML_WORKER__MEMORY_MB": "[" * 5000})
@example(b"a = 1" + b"0" * 5000, {"OMDML_WORKER__MEMORY_MB": "1" + "0" * 5000})
@example(b"", {"OMDML_WORKER__MEMORY_MB": "[" * 5000})
@example(b"", {"OMDML_NODE__BIND": "localhost:\u00b2", "OMDML_WORKER__BIND": "localhost:" + "9" * 5000})
@example(b'[log]\npath = "a\\u0000b"', {})
@example(b'[catalogues.c]\npath = "c"\n[models.m]\nlearner = "diagonal"\ngroups = {a = [[1], [2, 3]]}', {})
def test_a_configuration_is_sound_or_refused(text, environment):
    with tempfile.NamedTemporaryFile() as file, raises_at_most(ConfigurationError):
        Path(file.name).write_bytes(text)
        check_that_it_can_be_used(load(file.name, environment))


@fuzzed
@given(altered(tomllib.loads(SAMPLE.decode())), variables)
def test_options_of_any_type_and_size_are_sound_or_refused(table, environment):
    with raises_at_most(ConfigurationError):
        check_that_it_can_be_used(load(None, environment, table if isinstance(table, dict) else {"models": table}))


@functools.cache
def state(name: str, dtype: str = "float32") -> tuple[dict, dict]:
    """The state of a learner in the middle of a block: arrays, and their description."""
    model = small_learner(name, dtype=dtype)
    learn(model, *comparisons(name), end=21)
    return unpack(model.to_bytes())


@st.composite
def changed(draw, arrays, described, keep=()):
    """The same state with the arrays, their description or both changed, under digests that fit."""
    which = draw(st.sampled_from(["arrays", "words", "both"]))
    arrays = draw(altered_arrays(arrays)) if which != "words" else arrays
    words = {name: value for name, value in described.items() if name not in ("format", "sha256")}
    for name in words if which != "arrays" else ():
        words[name] = draw(altered(words[name])) if draw(st.booleans()) else words[name]
    return pack(arrays, words)


def check_that_it_goes_on(model: Learner, name: str) -> None:
    """Do what a worker does with a learner that it loaded."""
    assert Learner.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    model.metric.to_tensors()
    if dict(model.dims) == DIMS and model.name == name:
        with raises_at_most(FeedbackError):
            learn(model, *comparisons(name, 40))
        model.metric.to_tensors()


@fuzzed
@given(st.data())
def test_a_learner_s_state_of_any_content_goes_on_or_is_refused(data):
    name = data.draw(st.sampled_from(NAMES))
    with raises_at_most(CorruptError), np.errstate(all="ignore"):
        check_that_it_goes_on(Learner.from_bytes(data.draw(changed(*state(name)))), name)


@functools.cache
def snapshot(name: str) -> bytes:
    """The snapshot that a node gets of a learner."""
    return Snapshot(
        model="m", learner=name, version=21, generation="g", event_time=None, oldest_event_time=None,
        progress={"mistake_rate": 0.5}, metric=Learner.from_bytes(pack(*state(name))).metric,
    ).to_bytes()  # fmt: skip


def check_that_it_answers(loaded: Snapshot) -> None:
    """Do what a node does with a snapshot that it loaded."""
    metric = Snapshot.from_bytes(loaded.to_bytes()).metric
    if metric.dims == DIMS:
        items = {name: np.ones((4, size), np.float32) for name, size in DIMS.items()}
        for task in (None, *metric.tasks):
            metric.score({name: rows[0] for name, rows in items.items()}, items, task)


@fuzzed
@given(st.data())
def test_a_snapshot_of_any_content_answers_or_is_refused(data):
    sound = unpack(snapshot(data.draw(st.sampled_from(NAMES))))
    with raises_at_most(CorruptError), np.errstate(all="ignore"):
        check_that_it_answers(Snapshot.from_bytes(data.draw(changed(*sound))))


@functools.cache
def checkpoint() -> bytes:
    """The checkpoint that a worker saved after 60 events, some of which it held out."""
    place = world()
    place.log, place.store, place.graves = MemoryLog(), MemoryStore(), MemoryLog()
    place.send(*worlds.events(60))
    worker = place.worker()
    worker.step()
    next(iter(worker.partitions.values())).saving.save()
    return place.store.peek("shop").to_bytes()


def check_that_it_is_resumed(loaded: Checkpoint) -> None:
    """Do what a worker does with a checkpoint that its store has of a model."""
    place, store = world(), MemoryStore()
    store.save(msgspec.structs.replace(loaded, model="shop"), store.claim("shop").epoch)
    spec = Specs(place.configuration, {"items": place.catalogue}).find("shop")
    # It may be of another shape than is configured.
    with raises_at_most(ConfigurationError):
        model = claim("shop", spec, store, "test").model
        model.judge.verdict(model.learner.metric, model.learner.version)
        records = [Record(Partition("t", 0), 10**6 + index, event) for index, event in enumerate(worlds.events(20))]
        batches, _ = sort_out(records, lambda name: spec.learner.accepts)
        model.take(batches["shop"], lambda stage: contextlib.nullcontext())
        store.publish(model.snapshot(), model.epoch, model.judge.verdict(model.learner.metric, model.learner.version))
        model.home = Partition("t", 0)
        Checkpoint.from_bytes(model.checkpoint("test").to_bytes())


@fuzzed
@given(st.data())
def test_a_checkpoint_of_any_content_is_resumed_or_refused(data):
    with raises_at_most(CorruptError), np.errstate(all="ignore"):
        check_that_it_is_resumed(Checkpoint.from_bytes(data.draw(changed(*unpack(checkpoint())))))


@fuzzed
@given(st.data())
def test_damaged_bytes_of_states_snapshots_and_checkpoints_are_refused(data):
    name = data.draw(st.sampled_from(NAMES))
    samples = [pack(*state(name)), snapshot(name), checkpoint()]
    sent = data.draw(damaged(samples))
    for load_it in (Learner.from_bytes, Snapshot.from_bytes, Checkpoint.from_bytes, unpack):
        with raises_at_most(CorruptError):
            load_it(sent)
            assert sent in samples


@functools.cache
def files() -> dict[str, bytes]:
    """The files of a catalogue's folder."""
    with tempfile.TemporaryDirectory() as folder:
        worlds.catalogue(folder, mapped=True)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@st.composite
def another_catalogue(draw):
    """The same files, one of them damaged, or the manifest another; digests of files that are read whole fit."""
    folder = dict(files())
    name = draw(st.sampled_from(sorted(folder)))
    manifest = json.loads(folder[MANIFEST])
    if name == MANIFEST and draw(st.booleans()):
        manifest = draw(altered(manifest))
    else:
        folder[name] = draw(damaged([folder[name]]))
    if name in (IDS, SETS):
        manifest["parts"][0]["sha256"][name] = hashlib.sha256(folder[name]).hexdigest()
        manifest["parts"][0]["ids_bytes" if name == IDS else "sets_bytes"] = len(folder[name])
    if name == MAP and manifest.get("map"):
        manifest["map"]["sha256"] = hashlib.sha256(folder[name]).hexdigest()
    if name != MANIFEST or manifest != json.loads(files()[MANIFEST]):
        folder[MANIFEST] = json.dumps(manifest).encode()
    return folder


@fuzzed
@given(another_catalogue())
def test_a_catalogue_of_any_files_is_read_or_refused(given_files):
    with tempfile.TemporaryDirectory() as folder, raises_at_most(CatalogueError):
        for name, data in given_files.items():
            (Path(folder) / name).write_bytes(data)
        results = MappedCatalogue(folder)
        rows = results.rows([*results.ids, "nobody"])
        assert rows.tolist() == [*range(len(results.ids)), -1]
        for members in results.sets.values():
            {name: matrix[members] for name, matrix in results.features.items()}
        results.scale({name: np.ones((2, dim)) for name, dim in results.dims.items() if dim < 1000})
        if results.map:
            results.in_coordinates("mapped").scale({name: np.ones((2, dim)) for name, dim in results.dims.items()})
        results.verify()
