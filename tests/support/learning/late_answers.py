"""Stores that answer late: what a worker asked for is done when a test says so, or when the worker waits for it."""

from __future__ import annotations

from concurrent.futures import Executor, Future


class Asked(Future):
    """What was asked for. Nobody does it before ``answer``, or before somebody waits for the result."""

    def __init__(self, call, arguments):
        super().__init__()
        self._call, self._arguments = call, arguments

    def answer(self):
        if not self.done():
            try:
                self.set_result(self._call(*self._arguments))
            except Exception as error:
                self.set_exception(error)

    def result(self, timeout=None):
        self.answer()
        return super().result(timeout)


class LateAnswers(Executor):
    """Keeps what was asked for in ``asked``, the oldest first."""

    def __init__(self):
        self.asked = []

    def submit(self, call, /, *arguments):
        self.asked.append(Asked(call, arguments))
        return self.asked[-1]

    @property
    def unanswered(self):
        return [asked for asked in self.asked if not asked.done()]
