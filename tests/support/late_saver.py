"""What stands for the thread that saves large models: it does its work when a test says, or when somebody waits."""

from __future__ import annotations

from concurrent.futures import Executor, Future


class LateSaver(Executor):
    """Keeps the saves that it is to do. Whenever somebody asks whether one is done, ``is_done`` decides."""

    def __init__(self, is_done=lambda: False):
        self.is_done = is_done
        self.waiting = []

    def submit(self, save):
        self.waiting.append(LateSave(save, self))
        return self.waiting[-1]


class LateSave(Future):
    """A save that somebody runs, or waits for."""

    def __init__(self, save, saver):
        super().__init__()
        self.save, self.saver = save, saver

    def run(self):
        self.saver.waiting.remove(self)
        try:
            self.set_result(self.save())
        except Exception as error:
            self.set_exception(error)

    def done(self):
        if self in self.saver.waiting and self.saver.is_done():
            self.run()
        return super().done()

    def result(self, timeout=None):
        if self in self.saver.waiting:
            self.run()
        return super().result(timeout)
