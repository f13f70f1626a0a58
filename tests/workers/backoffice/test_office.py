"""The process beside a node: it does jobs, ends by itself when nobody asks, and is started again if it has ended."""

from __future__ import annotations

import json
import signal
from contextlib import closing

import pytest

from omdml.workers.backoffice import office
from omdml.workers.backoffice.office import BackOffice, JobError
from omdml.workers.configuration.config import Configuration, FileLog


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("office")
    log = FileLog(path=str(folder / "feedback"), letters=str(folder / "letters"))
    with closing(BackOffice(Configuration(log=log))) as result:
        yield result


def letters(desk):
    return json.loads(desk("letters", reason=None, model=None, still_open=True, last=10))


def test_a_job_is_done_in_a_process_that_stays(desk):
    assert letters(desk)["total"] == 0
    first = desk._process.pid
    assert letters(desk)["total"] == 0
    assert desk._process.pid == first


def test_a_refusal_comes_back_with_its_code_and_sentence(desk):
    with pytest.raises(JobError, match="there is no dead letter at 0/5") as caught:
        desk("explain", wanted="0/5")
    assert caught.value.reason == "invalid"


def test_a_job_that_fails_says_so_and_the_next_one_is_done(desk):
    with pytest.raises(JobError, match="the node's log says why") as caught:
        desk("no such job")
    assert caught.value.reason == "internal"
    assert letters(desk)["total"] == 0


def test_a_process_that_ended_is_started_again_and_a_killed_one_is_reported(desk, monkeypatch):
    letters(desk)
    desk._process.send_signal(signal.SIGKILL)
    desk._process.wait()
    with pytest.raises(JobError, match="ended before it answered"):
        letters(desk)
    # Only the process that is started here ends after so short a silence. The next one waits as long as usual.
    with monkeypatch.context() as impatient:
        impatient.setattr(office, "IDLE_S", 0.01)
        assert letters(desk)["total"] == 0
    assert desk._process.wait(30) == 0
    assert letters(desk)["total"] == 0


def test_a_job_that_takes_too_long_is_ended(desk, monkeypatch):
    letters(desk)
    monkeypatch.setattr(office, "TIMEOUT_S", 0.0)
    process = desk._process
    # It must not answer, even if this process gets no time to look.
    process.send_signal(signal.SIGSTOP)
    with pytest.raises(JobError, match="took longer than 0 s: use the command line") as caught:
        desk("health")
    assert caught.value.reason == "timeout"
    assert process.poll() == -signal.SIGKILL
