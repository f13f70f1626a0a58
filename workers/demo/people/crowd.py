"""People at work on one node, at a given rate, until they have made enough comparisons."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Self

from omdml.errors import OmdmlError
from omdml.feedback import AnyFeedback
from omdml.workers.demo.people.event_forms import Form, triplet
from omdml.workers.demo.people.ground_truth import Truth
from omdml.workers.demo.people.habits import Habits
from omdml.workers.demo.people.person import Person
from omdml.workers.demo.services.node_client import NodeClient

# Seconds between two looks of a person who waits, to see whether everything has ended.
LOOK_S = 0.1


class Task(NamedTuple):
    """What a crowd does.

    Parameters
    ----------
    url, model
        The node that it searches and sends feedback to, and the model.
    comparisons
        How many comparisons it makes, exactly.
    rate
        Comparisons per second of all people together. None means as fast as the node takes them.
    people
        How many people search at the same time.
    looks
        Rising numbers of comparisons at which everybody waits for :meth:`Crowd.go_on`.
    token
        The token of the node, if it has one.
    """

    url: str
    model: str
    comparisons: int
    rate: float | None = None
    people: int = 8
    habits: Habits = Habits()
    seed: int = 0
    looks: Sequence[int] = ()
    token: str = ""


class Crowd:
    """Simulated people, each with a thread and a connection.

    Their random choices depend on the seed alone. What they are shown, and so what they mark, also depends on what the
    node has learned by then.

    Parameters
    ----------
    truths
        What everybody knows, one truth for each task. Each person searches by them in turn.
    form
        Makes an event of a comparison.

    Attributes
    ----------
    sent
        How many comparisons the node has taken.
    search_s, send_s
        How many seconds each search took, and each sending of feedback.
    """

    def __init__(self, task: Task, *truths: Truth, form: Form = triplet) -> None:
        self.sent = 0
        self.search_s: list[float] = []
        self.send_s: list[float] = []
        self._began = self._ended = 0.0
        self._task, self._truths, self._form = task, truths, form
        # The numbers of comparisons at which everybody waits, and the number of all.
        self._ends = [*(look for look in task.looks if look < task.comparisons), task.comparisons]
        self._left = self._ends[0]
        # Monotonic time of the next search.
        self._turn_at = 0.0
        self._turns = threading.Condition()
        self._stopped = threading.Event()
        self._failed: OmdmlError | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"person-{number}", daemon=True)
            for number in range(task.people)
        ]

    def __enter__(self) -> Self:
        self._began = self._ended = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everybody, after they have sent what they are sending."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    @property
    def at_work(self) -> bool:
        """Whether somebody has more to do. If somebody gave up because of an error of the node, raises that error."""
        if self._failed:
            raise self._failed
        return any(thread.is_alive() for thread in self._threads)

    @property
    def waits(self) -> bool:
        """Whether all people are paused until :meth:`go_on`."""
        with self._turns:
            return len(self._ends) > 1 and self.sent == self._ends[0]

    def go_on(self) -> None:
        """Let people make comparisons up to the next look, or the last one."""
        with self._turns:
            seen = self._ends.pop(0)
            self._left = self._ends[0] - seen
            self._turns.notify_all()

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the last comparison that the node has taken."""
        return self._ended - self._began

    def _work(self, number: int) -> None:
        voices = itertools.cycle([Voice(truth, self._task, self._form, number) for truth in self._truths])
        client = NodeClient(self._task.url, token=self._task.token)
        try:
            while granted := self._take_turn():
                self._give_back(granted - self._search(next(voices), client, granted))
        except OmdmlError as error:
            self._failed = self._failed or error
            self._stopped.set()
        finally:
            client.close()

    def _take_turn(self) -> int:
        """Wait for the next turn; returns how many comparisons it may bring, 0 at the end."""
        task = self._task
        with self._turns:
            while not self._left and len(self._ends) > 1 and not self._stopped.is_set():
                self._turns.wait(LOOK_S)
            granted = min(self._left, task.habits.marks)
            self._left -= granted
            turn_at = max(self._turn_at, time.monotonic())
            self._turn_at = turn_at + (granted / task.rate if task.rate else 0.0)
        return 0 if self._stopped.wait(turn_at - time.monotonic()) else granted

    def _give_back(self, unused: int) -> None:
        with self._turns:
            self._left += unused
            self._turns.notify_all()

    def _search(self, voice: Voice, client: NodeClient, granted: int) -> int:
        """Search, mark what is shown, and send it; returns the number of comparisons."""
        query = voice.person.think()
        began = time.perf_counter()
        answer = client.search(self._task.model, query, self._task.habits.page, voice.task)
        self.search_s.append(time.perf_counter() - began)
        events = voice.say(query, [item.id for item in answer.items], granted)
        if events:
            self._send(client, events)
        return len(events)

    def _send(self, client: NodeClient, events: Sequence[AnyFeedback]) -> None:
        began = time.perf_counter()
        client.send(events)
        self.send_s.append(time.perf_counter() - began)
        with self._turns:
            self.sent += len(events)
            self._ended = time.monotonic()


class Voice:
    """One person on one task, with the form of their events."""

    def __init__(self, truth: Truth, crowd: Task, form: Form, number: int) -> None:
        self.task = truth.task
        self.person = Person(truth, crowd.habits, "-".join(filter(None, (str(crowd.seed), str(number), truth.task))))
        self._model, self._form = crowd.model, form
        self._turns = itertools.count()

    def say(self, query: str, shown: Sequence[str], granted: int) -> list[AnyFeedback]:
        """At most ``granted`` comparisons of what is shown, as events."""
        comparisons = self.person.compare(query, shown)[:granted]
        return [self._form(self._model, self.task, comparison, next(self._turns)) for comparison in comparisons]
