"""A store in Redis or Valkey, which any client in any language can read.

=====================================================  =============================================================
``omdml:{shop}:snapshot:<version>:<digest>``           safetensors (omdml/snapshot.py)
``omdml:{shop}:current``                               hash: serial, version, digest, epoch, published_at, pinned
``omdml:{shop}:history``                               stream: publications whose snapshots are kept, and moves
``omdml:{shop}:updates``                               channel: a serial whenever the history grows, as a hint
``omdml:{shop}:newest``                                hash: version, digest, epoch of the last publication; saved
                                                       once there was a checkpoint
``omdml:{shop}:checkpoint``, ``:checkpoint:previous``  hash: data, home_topic, home_partition, next, version, digest,
                                                       epoch; damaged where the newest could not be read
``omdml:{shop}:epoch``                                 who owns the model: counter and nonce
``omdml:mark:<topic id>:<partition>``                  an offset
``omdml:models``, ``omdml:store``                      set of names; the store's random id
``omdml-secret``                                       which events are held out; nodes have no right to read it
=====================================================  =============================================================

The name of a model is percent-encoded and, in braces, decides the slot of a cluster.
"""

from __future__ import annotations

import itertools
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from omdml.errors import StoreError
from omdml.snapshot import Checkpoint, Snapshot
from streams.protocols import Claim, Marks, Partition, Pointer, Position, Watch, Written
from streams.stores import redis_scripts as scripts
from streams.stores.checkpoints import (
    Saved,
    new_secret,
    none_left,
    none_valid,
    read_checkpoint,
    read_secret,
    store_lost,
)
from streams.stores.journal import PUBLICATIONS, Entry, destination, kind_of_move, newest_publication, superfluous
from streams.stores.redis_client import connect, masked, reaching, run_of, without_prefix
from streams.stores.redis_keys import StoreKeys, read_entry, read_pointer, read_position, understanding
from streams.stores.redis_watch import RedisWatch
from streams.stores.retention import RETENTION, SPARE, RetentionOf
from streams.stores.snapshots import bytes_gone, not_kept, read_snapshot

UNPUBLISHED_S = 600  # bytes that no script made permanent vanish after so long
ATTEMPTS = 3
PREFIX = "omdml"


class RedisStore:
    """A CheckpointStore and SnapshotStore; any number of processes and threads may use it.

    Parameters
    ----------
    url
        ``redis://user:password@host:6379/0``; ``rediss://`` with TLS, ``valkey://`` and ``valkeys://`` alike.
        ``?prefix=shop`` makes every key begin with that.
    retention
        Which snapshots stay when new ones come.

    Raises
    ------
    ConfigurationError
        The URL is none.
    StoreError
        From every method, within seconds: the server is out of reach, or refuses.
    """

    def __init__(self, url: str, retention: RetentionOf = RETENTION) -> None:
        self.retention = retention
        self._url, prefix = without_prefix(url)
        self._keys, self._where = StoreKeys(prefix or PREFIX), masked(url)
        self._client: Any = connect(self._url)
        self._publications: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        register = self._client.register_script
        self._claim, self._condemn, self._save = map(register, (scripts.CLAIM, scripts.CONDEMN, scripts.SAVE))
        self._publish, self._move, self._drop = map(register, (scripts.PUBLISH, scripts.MOVE, scripts.DROP))
        self._note, self._delete, self._move_mark = map(register, (scripts.NOTE, scripts.DELETE, scripts.MOVE_MARK))

    def __str__(self) -> str:
        return self._where

    @property
    def store_id(self) -> str:
        """The id that lies in the database."""
        with reaching(self._where):
            return str((self._client.get(self._keys.store) or b"").decode())

    def claim(self, model: str) -> Claim:
        """Become the owner.

        1. The store's id and the model's name. A crash after this leaves a name that nobody owns.
        2. The epoch, together with the newest checkpoint.
        3. Where that is damaged, it is marked. Where it is that, or gone, the one before it is read.
        """
        keys = self._keys.model(model)
        with reaching(self._where, model):
            with self._client.pipeline(transaction=False) as pipeline:
                pipeline.set(self._keys.store, secrets.token_hex(16), nx=True)
                pipeline.sadd(self._keys.models, model)
                pipeline.execute()
            epoch, data, digest, damaged, saved = self._claim(
                [keys.epoch, keys.checkpoint, keys.newest], [secrets.token_hex(8)]
            )
            checkpoint = None if damaged or data is None else read_checkpoint(model, data, self._where)
            if checkpoint:
                return Claim(epoch.decode(), checkpoint)
            if data is not None:
                self._condemn([keys.checkpoint], [digest])
            before = self._client.hget(keys.previous, "data")
        checkpoint = None if before is None else read_checkpoint(model, before, self._where)
        if checkpoint:
            return Claim(epoch.decode(), checkpoint, fell_back=True)
        if data or before:
            raise none_valid(model, self._where)
        if saved:
            raise none_left(model, self._where)
        return Claim(epoch.decode(), None)

    def positions(self, models: Sequence[str]) -> dict[str, Position]:
        """Those of the newest checkpoints."""
        fields = ("home_topic", "home_partition", "next", "damaged")
        with reaching(self._where), self._client.pipeline(transaction=False) as pipeline:
            for model in models:
                keys = self._keys.model(model)
                pipeline.hmget(keys.checkpoint, *fields).hmget(keys.previous, *fields)
            answers = pipeline.execute()
        found = {}
        for model, newest, before in zip(models, answers[::2], answers[1::2], strict=True):
            unsound = newest[-1] or not newest[0]
            found[model] = before if before[0] and unsound else newest
        return {model: read_position(fields) for model, fields in found.items() if fields[0]}

    def peek(self, model: str) -> Checkpoint | None:
        """The newest valid checkpoint."""
        keys = self._keys.model(model)
        with reaching(self._where, model), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hget(keys.checkpoint, "data").hget(keys.previous, "data")
            kept = pipeline.execute()
        sound = (read_checkpoint(model, data, self._where, quiet=True) for data in kept if data)
        return next((checkpoint for checkpoint in sound if checkpoint), None)

    def save(self, checkpoint: Checkpoint, epoch: str, back: bool = False) -> Written:
        """Keep this checkpoint and the one before it."""
        keys, data = self._keys.model(checkpoint.model), checkpoint.to_bytes()
        (topic, partition), offset, digest = Saved.of(checkpoint, data)
        with reaching(self._where, checkpoint.model):
            outcome = self._save(
                [keys.epoch, keys.checkpoint, keys.previous, keys.newest],
                [epoch, topic, partition, offset, checkpoint.version, digest, data, int(back)],
            )
        return self._written(outcome, checkpoint.model)

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset below which everything is in checkpoints; the run is the server's, and its replication's."""
        asked = list(partitions)
        with reaching(self._where), self._client.pipeline(transaction=False) as pipeline:
            for partition in asked:
                pipeline.get(self._keys.mark(partition))
            answers, run = pipeline.execute(), run_of(self._client)
        with understanding(answers):
            found = {one: int(answer) for one, answer in zip(asked, answers, strict=True) if answer is not None}
        return Marks(found, run)

    def move_mark(self, partition: Partition, before: int | None, offset: int) -> bool:
        """Set a mark, if it is as expected."""
        with reaching(self._where):
            expected = "" if before is None else before
            return bool(self._move_mark([self._keys.mark(partition)], [expected, offset]))

    def secret(self) -> bytes:
        """The secret that lies in the database."""
        with reaching(self._where), self._client.pipeline(transaction=False) as pipeline:
            pipeline.set(self._keys.secret, new_secret(), nx=True)
            pipeline.get(self._keys.secret)
            _, kept = pipeline.execute()
        return read_secret(kept or b"", f"{self._where}, key {self._keys.secret}")

    def models(self) -> list[str]:
        """Names of the models."""
        with reaching(self._where):
            return sorted(name.decode() for name in self._client.smembers(self._keys.models))

    def delete(self, model: str) -> None:
        """Forget a model, all at once: who claimed it before is told, who claims it from then on begins it anew."""
        keys, names = self._keys.model(model), self._keys.models
        with reaching(self._where, model):
            self._delete(
                [names, keys.history, keys.epoch, keys.checkpoint, keys.previous, keys.current, keys.newest],
                [model, keys.snapshots, keys.updates],
            )

    def publish(self, snapshot: Snapshot, epoch: str, held: str = "") -> Written:
        """Keep the snapshot, and make it live unless the pointer is pinned or a reason to hold it back is given.

        1. Write its bytes, with a time to live: what a refused publisher leaves vanishes.
        2. Make them permanent and move the pointer, in one script.
        3. Now and then, drop what need not stay.
        """
        model, key = snapshot.model, (snapshot.version, snapshot.digest)
        keys, data = self._keys.model(model), snapshot.to_bytes()
        blob = keys.snapshot(*key)
        outcome = scripts.ABSENT
        with reaching(self._where, model):
            for _ in range(ATTEMPTS):  # bytes that were there already may vanish before the script runs
                self._client.set(blob, data, ex=UNPUBLISHED_S, nx=True)
                outcome = self._publish(
                    [keys.epoch, keys.current, keys.newest, keys.history, blob], [epoch, *key, held, keys.updates]
                )
                if outcome != scripts.ABSENT:
                    break
            if outcome == Written.STORED.encode() and next(self._publications[model]) % SPARE == 0:
                self._thin_out(model)
        return self._written(outcome, model)

    def current(self, model: str) -> Pointer | None:
        """The live pointer."""
        with reaching(self._where, model), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hgetall(self._keys.model(model).current)
            pipeline.get(self._keys.store)
            fields, store_id = pipeline.execute()
        return read_pointer(fields, store_id) if fields else None

    def load(self, model: str, version: int | None = None) -> tuple[Pointer, Snapshot] | None:
        """The live snapshot, or the kept one of ``version``."""
        before = None
        while True:
            pointer = self._pointer(model, version)
            if pointer is None:
                return None
            with reaching(self._where, model):
                data = self._client.get(self._keys.model(model).snapshot(pointer.version, pointer.digest))
            if data is not None:
                return pointer, read_snapshot(model, pointer, data, self._where)
            if pointer == before:
                raise bytes_gone(model, pointer, self._where)
            before = pointer  # dropped since we looked, perhaps: look again

    def history(self, model: str) -> list[dict[str, Any]]:
        """Publications whose snapshots are kept, and moves of the pointer, oldest first."""
        with reaching(self._where, model):
            return [entry.as_history() for _, entry in self._entries(model)]

    def note(self, model: str, epoch: str, what: str, reason: str) -> Written:
        """Tell the history something about the live snapshot."""
        keys = self._keys.model(model)
        with reaching(self._where, model):
            outcome = self._note([keys.epoch, keys.current, keys.history], [epoch, what, reason])
        return self._written(outcome, model)

    def move(self, model: str, version: int | None, pin: bool) -> Pointer:
        """Point at the newest kept snapshot (of ``version``), and pin or unpin."""
        keys, moved = self._keys.model(model), None
        with reaching(self._where, model):
            for attempt in range(ATTEMPTS):  # a publication may come between the look and the move
                live, found = self.current(model), self._entries(model)
                entries = [entry for _, entry in found]
                if (target := destination(entries, version)) is None:
                    break
                what, seen = kind_of_move(live, target.version, pin), found[-1][0] if attempt + 1 < ATTEMPTS else b""
                moved = self._move(
                    [keys.current, keys.history, keys.snapshot(*target.snapshot)],
                    [*target.snapshot, target.epoch, what, int(pin), keys.updates, seen],
                )
                if moved is not None:
                    break
            if not moved:
                kept = [entry.version for entry in entries if entry.what in PUBLICATIONS]
                raise not_kept(model, version, kept, self._where)
            return read_pointer(dict(zip(moved[::2], moved[1::2], strict=True)), self._client.get(self._keys.store))

    def watch(self, models: Iterable[str]) -> Watch:
        """A subscription."""
        return RedisWatch(self._url, {model: self._keys.model(model).updates for model in models})

    def _pointer(self, model: str, version: int | None) -> Pointer | None:
        """The live pointer, or that to the last publication of ``version``."""
        live = self.current(model)
        if version is None or (live and live.version == version):
            return live
        with reaching(self._where, model):
            entry = newest_publication((entry for _, entry in self._entries(model)), version)
            store_id = self._client.get(self._keys.store) or b""
        return entry.pointer(store_id.decode()) if entry else None

    def _entries(self, model: str) -> list[tuple[bytes, Entry]]:
        return [(number, read_entry(fields)) for number, fields in self._client.xrange(self._keys.model(model).history)]

    def _thin_out(self, model: str) -> None:
        keys, entries = self._keys.model(model), self._entries(model)
        snapshots, moves = superfluous(entries, self.current(model), self.retention.of(model))
        for snapshot, numbers in snapshots.items():
            self._drop([keys.current, keys.history, keys.snapshot(*snapshot)], [*snapshot, *numbers])
        if moves:
            self._client.xdel(keys.history, *moves)

    def _written(self, outcome: bytes, model: str) -> Written:
        if outcome == scripts.LOST:
            raise store_lost(model, self._where)
        if outcome == scripts.ABSENT:
            raise StoreError(
                f"store {self._where}: model {model!r}: a snapshot vanished {ATTEMPTS} times once written: "
                "is another program removing keys, or the server evicting them (maxmemory-policy)?"
            )
        return Written(outcome.decode())
