"""A process that has to compile kernels says so; one that finds them in the cache does not."""

from __future__ import annotations

import os

from numba import njit

from omdml.streams.files.source import FileSink
from omdml.workers.configuration.warm_up import announce_compiling, warm_up
from tests.support.deep import deep
from tests.support.kernels import copy_kernels
from tests.support.processes import ROOT, Process
from tests.support.worlds import catalogue, events


def test_the_first_compilation_is_reported_and_no_later_one():
    first_announced, second_announced = [], []
    announce_compiling(lambda: first_announced.append("compiling"))
    announce_compiling(lambda: second_announced.append("compiling"))

    @njit
    def plus_one(number):
        return number + 1

    assert first_announced == []
    assert (plus_one(1), plus_one(1.5)) == (2, 2.5)
    assert first_announced == second_announced == ["compiling"]


def test_kernels_that_this_process_has_already_are_not_reported():
    warm_up([("lomdml", "float32")])
    announced = []
    announce_compiling(lambda: announced.append("compiling"))
    warm_up([("lomdml", "float32")])
    assert announced == []


def test_a_missing_catalogue_is_reported_before_kernels_are_compiled(tmp_path):
    (tmp_path / "omdml.toml").write_text('[catalogues.items]\npath = "items"\n[models.shop]\n')
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
    worker = Process(tmp_path, "worker", name="worker", environment=environment)
    assert worker.wait(600) == 2, worker.said
    assert "there is no catalogue that can be read" in worker.said
    assert "event=compiling_kernels" not in worker.said


@deep
def test_only_a_replay_whose_cache_lacks_a_kernel_says_that_it_compiles(tmp_path):
    catalogue(tmp_path / "items")
    sink = FileSink(tmp_path / "feedback")
    for event in events(50):
        sink.send(event, key="shop")
    sink.close()
    # Of the kernels that every learning calls, this one is compiled in the shortest time.
    copy_kernels(tmp_path / "kernels", ROOT, left_out="diagonal.walk")
    (tmp_path / "omdml.toml").write_text('[catalogues.items]\npath = "items"\n[models.shop]\nlearner = "diagonal"\n')
    announced = []
    for name in ("cold", "warm"):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kernels")}
        replay = Process(tmp_path, "replay", "--model", "shop", name=name, environment=environment)
        assert replay.wait(600) == 0, replay.said
        announced.append("event=compiling_kernels" in replay.said)
    assert announced == [True, False]
