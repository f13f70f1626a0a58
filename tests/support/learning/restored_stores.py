"""Stores of which copies are made, and brought back."""

from __future__ import annotations

import copy
import shutil

from omdml.streams.stores.folder.store import DirectoryStore
from omdml.streams.stores.memory import MemoryModel, MemoryStore


class RestorableMemory(MemoryStore):
    """A memory store of which copies can be made, and brought back."""

    def back_up(self):
        plain = {
            name: {key: copy.deepcopy(value) for key, value in vars(model).items() if key != "_changed"}
            for name, model in self._models.items()
        }
        self.copy = (plain, dict(self._marks))

    def restore(self):
        plain, self._marks = copy.deepcopy(self.copy)
        self._models = {name: MemoryModel(self._changed) for name in plain}
        for name, fields in plain.items():
            vars(self._models[name]).update(fields)

    def fail_over(self):
        """Have another server take over, which has another id."""
        self._store_id += "'"


class RestorableDirectory(DirectoryStore):
    """A folder of which copies can be made, and brought back."""

    def back_up(self):
        shutil.copytree(self.path, f"{self.path}.copy")

    def restore(self):
        shutil.rmtree(self.path)
        shutil.copytree(f"{self.path}.copy", self.path)
