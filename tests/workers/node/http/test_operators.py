"""What operators ask of a node: health, and dead letters, which a process beside it looks into."""

from __future__ import annotations

import json
import threading

import pytest

from omdml.workers.backoffice.office import JobError
from omdml.workers.configuration.access import NamedToken
from tests.support.shops import Shop, client_of, listening, refused
from tests.support.waiting import until

READER, OPERATOR = "0123456789abcdef-reader", "0123456789abcdef-operator"


class Office:
    """Notes the jobs that it was asked for, and answers once ``may_answer`` is set."""

    def __init__(self):
        self.jobs, self.may_answer = [], threading.Event()
        self.may_answer.set()

    def __call__(self, job, **arguments):
        self.jobs.append((job, arguments))
        self.may_answer.wait(30)
        if arguments.get("wanted") == "9/9":
            raise JobError("there is no dead letter at 9/9", "invalid")
        return json.dumps({"job": job}).encode()


@pytest.fixture
def office():
    return Office()


@pytest.fixture
def client(tmp_path, office):
    tokens = {"eve": NamedToken(token=READER, role="items"), "ann": NamedToken(token=OPERATOR, role="operator")}
    with (
        Shop(tmp_path).serving() as node,
        listening(node, tokens=tokens, office=office) as server,
        client_of(server, headers={"authorization": f"Bearer {OPERATOR}"}) as result,
    ):
        yield result


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/status"),
        ("GET", "/letters"),
        ("GET", "/letters/explain?position=0/1"),
        ("POST", "/letters/resend"),
        ("POST", "/letters/dismiss"),
    ],
)
def test_only_operators_get_to_letters_and_health(client, office, method, path):
    refused(client.request(method, path, headers={"authorization": ""}), 401, "unauthorized")
    refused(client.request(method, path, headers={"authorization": f"Bearer {READER}"}), 403, "forbidden")
    assert office.jobs == []


def test_all_who_ask_for_health_share_one_look(client, office):
    office.may_answer.clear()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(client.get("/status").json())) for _ in range(5)]
    for thread in threads:
        thread.start()
    office.may_answer.set()
    for thread in threads:
        thread.join()
    assert answers == [{"job": "health"}] * 5
    assert [job for job, _ in office.jobs] == ["health"]
    # After a letter is settled, health is looked at again.
    client.post("/letters/dismiss", json={"positions": ["0/1"], "reason": "a test"})
    client.get("/status")
    assert [job for job, _ in office.jobs] == ["health", "dismiss", "health"]


def test_letters_are_asked_for_by_reason_model_and_state(client, office):
    assert client.get("/letters", params={"reason": "not_json", "open": "true", "last": 5}).json() == {"job": "letters"}
    assert office.jobs == [("letters", {"reason": "not_json", "model": None, "still_open": True, "last": 5})]


def test_searches_are_answered_while_an_operator_waits(client, office):
    office.may_answer.clear()
    thread = threading.Thread(target=lambda: client.get("/letters"))
    thread.start()
    until(lambda: office.jobs)
    assert client.get("/search", params={"id": "i5", "k": 3}).status_code == 200
    assert thread.is_alive()
    office.may_answer.set()
    thread.join()


def test_a_job_that_cannot_be_done_is_refused_with_a_sentence(client):
    unknown = client.get("/letters/explain", params={"position": "9/9"})
    assert refused(unknown, 404, "no_letter") == "there is no dead letter at 9/9"
    assert "positions" in refused(client.post("/letters/resend", json={"positions": []}), 400, "invalid")
    assert "last" in refused(client.get("/letters", params={"last": 0}), 400, "invalid")


def test_a_node_without_a_back_office_says_so(tmp_path):
    with Shop(tmp_path).serving() as node, listening(node) as server, client_of(server) as client:
        assert "omdml node" in refused(client.get("/status"), 501, "not_here")
