"""A request to the cluster takes no longer than its limit, and a late answer is used only if that is allowed."""

from __future__ import annotations

import threading

import kafka.errors
import pytest

from omdml.streams.kafka.reading.late_answers import Question

SOON_S, LONG_S = 0.01, 30.0


class Cluster:
    """Answers with the number of the question, once it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer, self.has_answered = threading.Event(), threading.Event()

    def ask(self) -> int:
        self.asked += 1
        number = self.asked
        self.may_answer.wait(LONG_S)
        self.has_answered.set()
        return number


def test_an_answer_is_returned_and_the_next_question_is_a_new_one():
    cluster = Cluster()
    cluster.may_answer.set()
    question = Question(cluster.ask)
    assert [question.answer(LONG_S, late) for late in (False, True, True)] == [1, 2, 3]


@pytest.mark.parametrize(("late", "number"), [(True, 1), (False, 2)])
def test_a_late_answer_serves_only_who_allows_it(late, number):
    cluster = Cluster()
    question = Question(cluster.ask)
    for _ in range(3):
        with pytest.raises(kafka.errors.KafkaTimeoutError):
            question.answer(SOON_S, late=True)
    assert cluster.asked == 1
    cluster.may_answer.set()
    assert cluster.has_answered.wait(LONG_S)
    assert question.answer(LONG_S, late) == number


def test_an_answer_that_was_dropped_is_asked_for_again():
    cluster = Cluster()
    question = Question(cluster.ask)
    with pytest.raises(kafka.errors.KafkaTimeoutError):
        question.answer(SOON_S, late=True)
    question.drop()
    cluster.may_answer.set()
    assert question.answer(LONG_S, late=True) == 2


def test_what_asking_raises_is_raised():
    def fails() -> None:
        raise kafka.errors.RequestTimedOutError

    with pytest.raises(kafka.errors.RequestTimedOutError):
        Question(fails).answer(LONG_S)
