"""One worker, one log, and every learner: what each takes, what it refuses, and what nodes answer with it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from omdml import LEARNERS
from omdml.comparisons import conversion
from omdml.errors import ConfigurationError, CorruptError, FeedbackError
from omdml.feedback import SetJudgement, encode
from omdml.streams.catalogues.building.build import add_items, build_catalogue
from omdml.streams.files.source import FileSink, FileSource
from omdml.streams.memory_log import MemorySink
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryStore
from omdml.workers.configuration.loading import load
from omdml.workers.configuration.specs import Specs
from omdml.workers.events.decoding import Batch
from omdml.workers.events.lookup import Lookup
from omdml.workers.events.validation import send_events
from omdml.workers.model.claim import claim
from omdml.workers.node.node import RetrievalNode
from tests.support.learning.store_samples import checkpoint
from tests.support.waiting import wait_until_ready
from tests.support.worlds import TASKS, World, catalogue, feedback, letters, run_until_idle, tasks_of
from tests.workers.learning.every_learner import KINDS, comparison, everything, feedback_for, learned_directly, models


class Mortal(FileSource):
    """A log in files whose reader can be killed."""

    def die(self) -> None:
        """The process is gone: nothing is saved and nothing is reported."""
        self._owned = False
        self.close()


class Shelf(World):
    """A world of every learner, on real files."""

    def __init__(self, folder) -> None:
        super().__init__(folder, models=models())
        self.store = DirectoryStore(folder / "state")
        self.folder, self.sink = folder / "feedback", FileSink(folder / "feedback", fsync=False)

    def tell(self, *feedback_events) -> None:
        for event in feedback_events:
            self.sink.send(encode(event), event.model)
        self.sink.flush()

    def work(self, **config):
        """A worker on the log in files."""
        worker = self.worker(source=Mortal(self.folder))
        worker.schedule.config = type(worker.schedule.config)(**config)
        return worker


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path)


def test_models_of_every_learner_survive_their_worker_to_the_byte(shelf):
    feedback_of_all = everything()
    shelf.tell(*feedback_of_all)
    # Each worker is killed in the middle: most of what it learned is in no checkpoint.
    for _ in range(3):
        worker = shelf.work(max_poll_records=len(feedback_of_all) // 7, checkpoint_interval_s=2.0)
        for _ in range(3):
            worker.step()
        worker.services.source.die()
    run_until_idle(shelf.work(max_poll_records=1000))
    assert letters(shelf) == []
    for name in LEARNERS:
        twin = learned_directly(name, shelf.catalogue)
        assert shelf.store.claim(name).checkpoint.state == twin.to_bytes(), name
        assert shelf.store.load(name)[1].version == twin.version == len(feedback_for(name))


def test_a_node_answers_each_with_its_own_metric_task_by_task(shelf):
    shelf.tell(*everything())
    run_until_idle(shelf.work())
    features = {name: np.asarray(matrix) for name, matrix in shelf.catalogue.features.items()}
    singles = [name for name in LEARNERS if "set" not in LEARNERS[name].accepts]
    with RetrievalNode(shelf.store, lambda model: shelf.catalogue, singles) as node:
        wait_until_ready(node)
        for name in singles:
            metric = learned_directly(name, shelf.catalogue).metric
            for task in (None, *metric.tasks):
                scores = metric.score({key: x[7] for key, x in features.items()}, features, task)
                answer = node.search(name, ids=["i7"], k=5, task=task)
                best = np.argsort(-np.delete(scores, 7), kind="stable")[:5]
                expected = np.delete(scores, 7)[best]
                assert answer.version == len(feedback_for(name))
                np.testing.assert_allclose([-item.distance for item in answer.items], expected, rtol=1e-4, atol=1e-5)


def test_the_metrics_page_names_models_and_the_weights_they_have(shelf):
    shelf.tell(*everything())
    registry = CollectorRegistry()
    run_until_idle(shelf.worker(source=Mortal(shelf.folder), registry=registry))
    page = generate_latest(registry).decode()
    for name, learner in LEARNERS.items():
        twin = learned_directly(name, shelf.catalogue)
        assert f'omdml_worker_learned_version{{model="{name}"}} {twin.version}.0' in page
        assert f'omdml_worker_mistakes_total{{model="{name}"}} {twin.mistakes}.0' in page
        assert f'omdml_worker_updates_total{{model="{name}"}} {twin.updates}.0' in page
        assert (f'omdml_worker_modality_weight{{modality="shape",model="{name}"}}' in page) == hasattr(
            learner, "weights"
        )


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_feedback_of_another_kind_is_a_letter_that_says_which_are_learned(tmp_path, name):
    world = World(tmp_path, models={name: models()[name]})
    for kind in KINDS:
        world.send(*(encode(event) for event in feedback(kind, 2, 0, name, tasks_of(name))), key=name)
    run_until_idle(world.worker())
    accepted = LEARNERS[name].accepts
    refused = [kind for kind in KINDS if kind not in accepted]
    assert [letter.reason for letter in letters(world)] == ["not_accepted"] * 2 * len(refused)
    learns = ", ".join(f"{kind}s" for kind in sorted(accepted))
    for letter, kind in zip(letters(world)[::2], refused, strict=True):
        assert letter.error.startswith(f"model {name!r} learns {learns}, got a {kind}: send what it learns")
    assert world.store.load(name)[1].version == 2 * len(accepted)


def test_a_ranking_is_all_its_quadruplets_to_a_learner_of_quadruplets(tmp_path):
    world = World(tmp_path, models={"shop": {"learner": "qwise"}})
    world.send(b'{"type":"ranking","model":"shop","query":"i0","relevant":["i1","i2"],"irrelevant":["i3","i4"]}')
    run_until_idle(world.worker())
    twin = LEARNERS["qwise"](dims=dict(world.catalogue.dims))
    twin.learn_many([(0, 1, 0, 3), (0, 1, 0, 4), (0, 2, 0, 3), (0, 2, 0, 4)], world.catalogue.features)
    assert world.store.claim("shop").checkpoint.state == twin.to_bytes()


def test_a_pair_of_an_unknown_task_is_a_letter_that_names_the_tasks(tmp_path):
    world = World(tmp_path, models={"faces": models()["cpmtml"]})
    events = list(feedback("pair", 10, model="faces"))
    strange = replace_task(events[0], "three")
    world.send(*map(encode, (*events[:5], strange, *events[5:])), key="faces")
    run_until_idle(world.worker())
    (letter,) = letters(world)
    assert letter.reason == "unknown_task"
    assert letter.error.endswith("is of task 'three', expected one of one, other; nothing was learned")
    assert world.store.load("faces")[1].version == 10


def test_a_pair_of_a_task_is_a_letter_if_a_model_has_none(tmp_path):
    world = World(tmp_path, models={"shop": models()["dca"]})
    events = list(feedback("pair", 10, tasks=tasks_of("dca")))
    world.send(*map(encode, (*events[:5], replace_task(events[0], "three"), *events[5:])))
    run_until_idle(world.worker())
    (letter,) = letters(world)
    assert letter.reason == "unknown_task"
    assert "pair of task 'three', but model 'shop' has one sense of similar" in letter.error
    assert world.store.load("shop")[1].version == 10


def test_events_refused_for_one_reason_do_not_hide_earlier_ones_of_another(tmp_path):
    options = {"learner": "cpmtml", "tasks": list(TASKS), "step": "ogd", "eta": 1e30}
    world = World(tmp_path, models={"faces": options})
    events = list(feedback("pair", 10, model="faces"))
    # The unknown task is refused before anything is learned.
    world.send(*map(encode, (*events, replace_task(events[0], "three"))), key="faces")
    run_until_idle(world.worker())
    reasons = [letter.reason for letter in letters(world)]
    assert reasons == ["diverged"] * (len(reasons) - 1) + ["unknown_task"]
    assert len(reasons) > 1
    assert world.store.load("faces")[1].version == 11 - len(reasons)


def test_a_pair_that_names_no_task_is_of_the_only_one(tmp_path):
    world = World(tmp_path, models={"faces": {"learner": "stml", "rank": 3}})
    world.send(b'{"type":"pair","model":"faces","left":"i0","right":"i1","similar":true}', key="faces")
    run_until_idle(world.worker())
    twin = LEARNERS["stml"](dims=dict(world.catalogue.dims), rank=3)
    twin.learn_many([(0, 1)], world.catalogue.features, similar=True)
    assert world.store.claim("faces").checkpoint.state == twin.to_bytes()


def test_feed_takes_what_a_worker_learns_and_refuses_what_it_cannot_learn(tmp_path):
    world = World(tmp_path, models=models())
    good = [encode(event) for event in everything()]
    bad = [encode(event) for event in feedback("pair", 1, model="lomdml")]
    bad += [encode(replace_task(event, "three")) for event in feedback("pair", 1, model="cpmtml")]
    specs = Specs(world.configuration, {"items": world.catalogue})
    fed = send_events(enumerate([*good, *bad], start=1), specs, MemorySink(world.log))
    assert sum(fed.accepted.values()) == len(good)
    assert [refused.error.reason for refused in fed.refused] == ["not_accepted", "unknown_task"]
    worker = world.worker()
    run_until_idle(worker)
    assert letters(world) == []
    assert {name: world.store.load(name)[1].version for name in LEARNERS} == {n: len(feedback_for(n)) for n in LEARNERS}
    # If another sender brings these events, the worker refuses them for the same reasons.
    world.send(*bad)
    run_until_idle(worker)
    assert sorted(letter.reason for letter in letters(world)) == ["not_accepted", "unknown_task"]


class Judges:
    """Stands in for a learner of sets: it has all that the look-up asks of one."""

    accepts, width, columns = frozenset({"set"}), 0, ()


def judged(event, catalogue):
    """Rows of one judgement, and the table they point into; or the reason why there are none."""
    batch = Batch()
    record = Record(Partition("topic", 0), 0, encode(event))
    batch.add(record, event, conversion(Judges.accepts)(event))
    located, refused = Lookup("photos", Judges, catalogue).locate(batch)
    return (refused[0].error.reason, refused[0].error) if refused else (located.compared[0], located.features)


def photo(**changes):
    ids = {"query": ("i7", "i9"), "relevant": ("s3", "i5"), "irrelevant": ("s4",)}
    return SetJudgement(**{"model": "photos", **ids, **changes})


def test_a_judgement_is_the_rows_of_the_querys_elements_and_of_each_set(tmp_path):
    items = catalogue(tmp_path)
    judgement, table = judged(photo(), items)
    expected = comparison(photo(), items, 0)[0]
    sets = zip((judgement.query, *judgement.relevant, *judgement.irrelevant),
               (expected.query, *expected.relevant, *expected.irrelevant), strict=True)  # fmt: skip
    for table_rows, item_rows in sets:
        np.testing.assert_array_equal(table["shape"][table_rows], items.features["shape"][item_rows])
    assert [len(rows) for rows in judgement.relevant] == [2, 1]
    assert judgement.irrelevant[0].shape == (2,)


def test_a_judgement_may_bring_the_vectors_of_elements_of_its_own(tmp_path):
    vectors = {"new": {"shape": [9.0] * 9, "noise": [9.0] * 5}}
    items = catalogue(tmp_path)
    judgement, table = judged(photo(query=("new",), irrelevant=("new",), features=vectors), items)
    scaled = items.scale({name: np.array([vector]) for name, vector in vectors["new"].items()})
    for rows in (judgement.query, judgement.irrelevant[0]):
        np.testing.assert_array_equal(table["shape"][rows], scaled["shape"])


@pytest.mark.parametrize("unknown", [{"relevant": ("s999",)}, {"irrelevant": ("i999",)}, {"query": ("s3",)}])
def test_a_judgement_of_what_is_not_in_the_catalogue_is_refused(tmp_path, unknown):
    reason, error = judged(photo(**unknown), catalogue(tmp_path))
    assert reason == "unknown_item"
    assert next(iter(unknown.values()))[0] in str(error)


def test_a_set_added_while_running_is_known_to_the_next_judgement_that_names_it(tmp_path):
    items = catalogue(tmp_path)
    item = {name: np.asarray(matrix[:1]) for name, matrix in items.features.items()}
    add_items(tmp_path, item, ids=["new"], sets={"s999": ["i1", "new"]})
    judgement, _ = judged(photo(relevant=("s999",)), items)
    assert judgement.relevant[0].shape == (2,)


def test_a_judgement_of_more_sets_than_the_limit_is_refused():
    with pytest.raises(FeedbackError, match="set of 1003 ids, at most 1000") as caught:
        conversion(Judges.accepts)(photo(relevant=("s3",) * 1000))
    assert caught.value.reason == "too_many"


def replace_task(pair, task):
    """The same pair of another task."""
    return msgspec.structs.replace(pair, task=task)


def test_a_model_that_cannot_start_is_named(tmp_path):
    tiny = build_catalogue(tmp_path / "items", {"color": 1e-20 * np.eye(20)}, scaling="none")
    models = {"catalogues": {"items": {"path": "items"}}, "models": {"shop": {"learner": "qwise"}}}
    spec = Specs(load(None, {}, models), {"items": tiny}).find("shop")
    with pytest.raises(ConfigurationError, match=r"model .shop. cannot start: color: "):
        claim("shop", spec, MemoryStore(), "here")


def test_a_checkpoint_of_another_state_is_named_with_what_to_do(tmp_path):
    world = World(tmp_path)
    world.store.save(checkpoint(1, state=b"no state"), world.store.claim("shop").epoch)
    with pytest.raises(CorruptError, match=r"checkpoint of model .shop.: .*omdml models reset"):
        claim("shop", world.worker().services.specs.find("shop"), world.store, "here")
