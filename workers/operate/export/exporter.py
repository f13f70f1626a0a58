"""Writes the vectors of all items under a version; for later versions, only those that moved."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from omdml.errors import CatalogueError, ConfigurationError, CorruptError, StoreError, StoreRefused
from omdml.snapshot import Snapshot
from omdml.streams.disk import take_lock
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.store import Pointer, SnapshotStore
from omdml.workers.operate.export.layout import Rows, pyarrow, read_part, write_part
from omdml.workers.operate.export.manifest import ExportManifest, ExportPart, Format, read_manifest
from omdml.workers.operate.export.source import AttributeTable, LiveItems
from omdml.workers.operate.export.vectors import (
    aligned,
    chosen,
    distances,
    matched,
    merged,
    spread,
    widened,
)

LOCK = ".lock"
# Seconds between two looks at the store.
LOOK_S = 1.0
PART_OR_DRAFT = re.compile(r"part-\d{6,}|\.[0-9a-f]{16}")


class ExportOptions(NamedTuple):
    """What is exported, and how.

    ``moved`` is how far an item must move to be written again, as a share of the items' spread. If ``follow``, the
    vectors are padded, so that embeddings can get wider.
    """

    model: str
    task: str | None = None
    format: Format = "npy"
    moved: float = 0.0
    version: int | None = None
    follow: bool = False


class ExportStep(NamedTuple):
    """The result of a step: the new manifest, and the part if one was written."""

    manifest: ExportManifest
    part: ExportPart | None


class Exporter:
    """Keeps an export in a folder equal to what a model's nodes answer with.

    It needs memory for the embedding that was written last and for the new one: two float32 arrays (n, width).

    Parameters
    ----------
    folder
        The folder that parts are written to.
    options
        What is exported.
    store
        The store of the snapshots.
    catalogue
        Returns the model's catalogue as it is now, including items that were added; raises CatalogueError.
    attributes
        Returns the attributes of the items, None if there are none.

    Raises
    ------
    ConfigurationError
        The folder holds something else, another process writes there, or pyarrow is missing.
    CorruptError
        The export in the folder cannot be read.
    """

    def __init__(
        self,
        folder: Path,
        options: ExportOptions,
        store: SnapshotStore,
        catalogue: Callable[[], Catalogue],
        attributes: Callable[[], AttributeTable | None],
    ) -> None:
        if options.format == "parquet":
            pyarrow()
        self.folder, self.options = folder, options
        self._source = LiveItems(store, catalogue, attributes, options.model, options.task, options.version)
        self.manifest = read_manifest(folder)
        self._written: Rows | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock of the folder; raises ConfigurationError if another process writes into it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise ConfigurationError(f"{self.folder}: {error.strerror}: name a folder that can be written") from error
        try:
            if not take_lock(descriptor):
                raise ConfigurationError(
                    f"{self.folder}: another `omdml export` writes here: stop it, or name another folder"
                )
            # Another process may have written here until now.
            self.manifest = read_manifest(self.folder)
            yield
        finally:
            os.close(descriptor)

    def resume(self) -> ExportManifest | None:
        """Read the export in the folder, to go on with it.

        Returns None if the folder is empty, or its export is of another model, task or format. Raises CorruptError if
        it cannot be read.
        """
        exported, wanted = self.manifest, self.options
        if exported is None or (exported.model, exported.task, exported.format) != (
            wanted.model,
            wanted.task,
            wanted.format,
        ):
            return None
        for part in exported.parts:
            self._written = merged(self._written, read_part(self.folder, part, exported.format, exported.width))
        return exported

    def step(self) -> ExportStep | None:
        """Write what changed since the last step; None if nothing did.

        Raises StoreError if nothing is published, or the store is out of reach; CatalogueError if the version does not
        fit the catalogue; CorruptError if the metric diverged.
        """
        if (items := self._source.changed()) is None:
            return None
        pointer, snapshot, now = items.pointer, items.snapshot, items.rows
        changes, bound = self._changes(now, snapshot.generation)
        if self.options.follow and changes is None:
            now = now._replace(embedding=widened(now.embedding))
        written = self._keep(pointer, snapshot, now, changes, bound)
        self._source.done(items)
        return written

    def follow(self, stop: threading.Event, tell: Callable[[str], None], look_s: float = LOOK_S) -> None:
        """Keep the export up to date until ``stop``. Calls ``tell`` for each part, and once for a reason to wait."""
        waiting = ""
        while not stop.is_set():
            try:
                if manifest := self.step():
                    tell(in_words(manifest))
                waiting = ""
            except (StoreError, CatalogueError, CorruptError) as error:
                # All of these can pass: a store comes back, a worker publishes on the new catalogue, an operator rolls
                # back.
                if isinstance(error, StoreRefused):
                    raise
                if str(error) != waiting:
                    waiting = str(error)
                    tell(f"waiting: {waiting}")
            stop.wait(look_s)

    def _changes(self, now: Rows, generation: str) -> tuple[Rows | None, float]:
        """The rows that changed since the last part, and the bound in distance; None if all must be written."""
        written, manifest = self._written, self.manifest
        if written is None or manifest is None or manifest.generation != generation:
            return None, 0.0
        width = written.embedding.shape[1]
        if now.embedding.shape[1] > width or (now.attributes is None) != (written.attributes is None):
            return None, 0.0
        rows_now, rows_written = matched(now.ids, written.ids)
        rotated = aligned(now.embedding, written.embedding, rows_now, rows_written)
        bound = self.options.moved * spread(rotated)
        changed = np.ones(len(now.ids), bool)
        changed[rows_now] = distances(rotated, written.embedding, rows_now, rows_written) > bound
        if now.attributes is not None and written.attributes is not None:
            pairs = zip(rows_now.tolist(), rows_written.tolist(), strict=True)
            changed[[row for row, before in pairs if now.attributes[row] != written.attributes[before]]] = True
        removed = sorted(set(written.ids) - set(now.ids))
        changes = chosen(Rows(now.ids, rotated, now.attributes, removed), np.flatnonzero(changed))
        # If the parts had more changed rows than there are items, writing all is shorter for a new reader.
        if sum(part.rows for part in manifest.parts[1:]) + len(changes.ids) > len(now.ids):
            return None, 0.0
        return changes, bound

    def _keep(self, pointer: Pointer, snapshot: Snapshot, now: Rows, changes: Rows | None, bound: float) -> ExportStep:
        """Write a part and the manifest that names it; a crash in between leaves the export as it was.

        1. The part is written under another name, and renamed when it is on the disk. Nobody reads it yet. After a
           crash the next start overwrites it.
        2. The manifest is replaced. From now on readers see the part.
        3. Folders are deleted that neither this manifest nor the previous one names. So a program that still reads by
           the previous one finds all of its parts.
        """
        before = self.manifest
        parts = before.parts if before and changes is not None else ()
        rows, part = now if changes is None else changes, None
        if changes is None or changes.ids or changes.removed:
            name = f"part-{1 + max((number(stored.name) for stored in before.parts), default=0) if before else 1:06}"
            files = write_part(self.folder, name, self.options.format, rows)
            part = ExportPart(
                name=name, whole=changes is None, version=snapshot.version, serial=pointer.serial, rows=len(rows.ids),
                removed=len(rows.removed), files=files,
            )  # fmt: skip
        self._written = now if changes is None else merged(self._written, changes)
        self.manifest = ExportManifest(
            model=snapshot.model, task=self.options.task, format=self.options.format,
            width=self._written.embedding.shape[1], items=len(now.ids), moved=self.options.moved,
            bound=bound, version=snapshot.version, serial=pointer.serial, digest=snapshot.digest,
            generation=snapshot.generation, parts=(*parts, part) if part else parts,
        )  # fmt: skip
        self.manifest.write(self.folder)
        named = {stored.name for manifest in (before, self.manifest) if manifest for stored in manifest.parts}
        for entry in self.folder.iterdir():
            if PART_OR_DRAFT.fullmatch(entry.name) and entry.name not in named:
                shutil.rmtree(entry, ignore_errors=True)
        return ExportStep(self.manifest, part)


def in_words(written: ExportStep) -> str:
    """Describe a step in one sentence."""
    manifest, part = written
    if part is None:
        changes = "nothing moved far enough"
    elif part.whole:
        changes = f"all {part.rows:,} items"
    else:
        changes = f"{part.rows:,} of {manifest.items:,} items changed, {part.removed:,} removed"
    return f"version {manifest.version:,}, serial {manifest.serial}: {changes}, {manifest.width} numbers each"


def number(name: str) -> int:
    """The number in the name of a part."""
    return int(name.removeprefix("part-"))
