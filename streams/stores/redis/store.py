"""A store in Redis or Valkey, which any client in any language can read.

=====================================================  =============================================================
``omdml:{shop}:snapshot:<version>:<digest>``           safetensors (omdml/snapshot.py)
``omdml:{shop}:current``                               hash: serial, version, digest, epoch, published_at, pinned
``omdml:{shop}:history``                               stream: publications whose snapshots are kept, and moves
``omdml:{shop}:updates``                               channel: a serial whenever the history grows, as a hint
``omdml:{shop}:newest``                                hash: version, digest, epoch of the last publication; saved,
                                                       the digest of the checkpoint that was saved last
``omdml:{shop}:checkpoint``, ``:checkpoint:previous``  hash: data, home_topic, home_partition, next, version, digest,
                                                       epoch; damaged if the newest could not be read
``omdml:{shop}:epoch``                                 who owns the model: counter and nonce
``omdml:mark:<topic id>:<partition>``                  an offset
``omdml:placement:<topic id>``                         streams/placement.py, as JSON
``omdml:group:<topic id>``                             the group that reads the log
``omdml:models``, ``omdml:store``                      set of names; the store's random id
``omdml:replacements``                                 how many checkpoints were replaced from outside of workers
``omdml:format``                                       number of these keys and fields (omdml/formats.py)
``omdml-secret``                                       which events are held out; nodes have no right to read it
=====================================================  =============================================================

The name of a model is percent-encoded and, in braces, decides the slot of a cluster.
"""

from __future__ import annotations

import itertools
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Any

from omdml.errors import CorruptError, FormatError, StoreLost
from omdml.formats import REDIS_STORE
from omdml.snapshot import Checkpoint, Snapshot
from omdml.streams.placement import Assumed, Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import NOBODY, Claim, ModelPosition, Pointer, Watch, Why, Written
from omdml.streams.stores.checkpoints import Saved, none_left, none_valid, read_checkpoint, store_lost
from omdml.streams.stores.journal import PUBLICATIONS, JournalEntry, destination, kind_of_move, superfluous
from omdml.streams.stores.many import the_only
from omdml.streams.stores.redis import scripts
from omdml.streams.stores.redis.client import changing, reaching
from omdml.streams.stores.redis.database import run
from omdml.streams.stores.redis.keys import ClaimAnswer, read_entry, read_names, read_pointer, read_position, replaced
from omdml.streams.stores.redis.marks import RedisMarks
from omdml.streams.stores.redis.watch import RedisWatch
from omdml.streams.stores.retention import RETENTION, SPARE, RetentionOf
from omdml.streams.stores.snapshots import bytes_gone, not_kept, read_snapshot

# How often a move is decided, if publications come between the look and the move.
ATTEMPTS = 3


class RedisStore(RedisMarks):
    """A Store (see streams/protocols/store.py); any number of processes and threads may use it.

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
        The URL is not the address of a server.
    StoreError
        From every method, within seconds: the server is out of reach, or refuses.
    """

    def __init__(self, url: str, retention: RetentionOf = RETENTION) -> None:
        super().__init__(url)
        self.retention = retention
        self._publications: defaultdict[str, Iterator[int]] = defaultdict(publication_counter)

    def claim(self, model: str) -> Claim:
        return the_only(self.claim_all([model]))

    def claim_all(self, models: Sequence[str]) -> list[Claim | CorruptError | StoreLost]:
        """Become the owner of each.

        1. The number of this format, looked at before anything is written.
        2. The store's id.
        3. The epochs, together with the newest checkpoints.
        4. The models' names. They come after the epochs: if a model is deleted in between, a name is left that nobody
           owns. Otherwise a model that is owned, and learns, would be missing among the names. A crash before this
           leaves epochs that nobody knows.
        5. A newest checkpoint that is damaged is marked. If it is that, or gone, the one before it is read.
        """
        with reaching(self._where):
            number = self._client.get(self._keys.format)
            self._check_format(number)
            if number != b"%d" % REDIS_STORE.number:
                self._client.set(self._keys.format, REDIS_STORE.number)
        with self._asking([None, *models, None]) as (pipeline, answers):
            pipeline.set(self._keys.store, secrets.token_hex(16), nx=True)
            for model in models:
                keys = self._keys.model(model)
                names = [keys.epoch, keys.checkpoint, keys.newest, keys.previous]
                run(pipeline, self._claim, names, [secrets.token_hex(8)])
            pipeline.sadd(self._keys.models, *models)
        replies = [ClaimAnswer(*answer) for answer in answers[1:-1]]
        claims: dict[str, Claim | CorruptError] = {}
        for model, claim in zip(models, replies, strict=True):
            if not claim.data or claim.damaged:
                continue
            try:
                checkpoint = read_checkpoint(model, claim.data, self._where)
            except FormatError as error:
                claims[model] = error
                continue
            if checkpoint:
                claims[model] = Claim(claim.epoch.decode(), checkpoint, fell_back=claim.replaced)
        rest = {model: claim for model, claim in zip(models, replies, strict=True) if model not in claims}
        claims |= self._fall_back(rest)
        for model, answer in zip(models, replies, strict=True):
            result = claims[model]
            if isinstance(result, CorruptError):
                result.epoch = answer.epoch.decode()
        return [claims[model] for model in models]

    def _fall_back(self, replies: Mapping[str, ClaimAnswer]) -> dict[str, Claim | CorruptError]:
        """The claims of models whose newest checkpoint is gone or damaged, or that have none."""
        damaged = [model for model, claim in replies.items() if claim.data is not None]
        before = {model: claim.before for model, claim in replies.items()}
        if damaged:
            for model in damaged:
                # One by one, because damage is rare.
                with reaching(self._where, model):
                    self._condemn([self._keys.model(model).checkpoint], [replies[model].digest])
            with self._asking(damaged) as (pipeline, answers):
                for model in damaged:
                    pipeline.hget(self._keys.model(model).previous, "data")
            before |= zip(damaged, answers, strict=True)
        claims: dict[str, Claim | CorruptError] = {}
        for model, claim in replies.items():
            data = before[model]
            try:
                checkpoint = None if data is None else read_checkpoint(model, data, self._where)
            except FormatError as error:
                claims[model] = error
                continue
            if checkpoint:
                claims[model] = Claim(claim.epoch.decode(), checkpoint, fell_back=True)
            elif claim.data or data:
                claims[model] = none_valid(model, self._where)
            elif claim.saved:
                claims[model] = none_left(model, self._where)
            else:
                claims[model] = Claim(claim.epoch.decode(), None)
                # With its first publications nothing can be superfluous.
                self._publications[model] = itertools.count(1)
        return claims

    def positions(self, models: Sequence[str]) -> dict[str, ModelPosition]:
        """The positions of the newest checkpoints. A claim lists a model's name before anything of it is saved."""
        fields = ("home_topic", "home_partition", "next", "damaged")
        if not models:
            return {}
        with reaching(self._where), self._client.pipeline(transaction=False) as pipeline:
            # New models come by the hundred: one command tells of all of them that there is nothing to read.
            models = list(compress(models, self._client.smismember(self._keys.models, models)))
            for model in models:
                keys = self._keys.model(model)
                pipeline.hmget(keys.checkpoint, *fields).hmget(keys.previous, *fields)
            answers = pipeline.execute()
        positions = {}
        for model, newest, before in zip(models, answers[::2], answers[1::2], strict=True):
            unsound = newest[-1] or not newest[0]
            positions[model] = before if before[0] and unsound else newest
        return {model: read_position(values) for model, values in positions.items() if values[0]}

    def peek(self, model: str) -> Checkpoint | None:
        keys = self._keys.model(model)
        with reaching(self._where, model), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hget(keys.checkpoint, "data").hget(keys.previous, "data")
            checkpoints = pipeline.execute()
        sound = (read_checkpoint(model, data, self._where, quiet=True) for data in checkpoints if data)
        return next((checkpoint for checkpoint in sound if checkpoint), None)

    def fell_back(self, model: str) -> bool:
        keys = self._keys.model(model)
        with reaching(self._where, model), self._client.pipeline(transaction=False) as pipeline:
            pipeline.hmget(keys.checkpoint, "digest", "damaged").hget(keys.newest, "saved").exists(keys.previous)
            (digest, damaged), saved, previous = pipeline.execute()
        return bool(damaged or (replaced(saved, digest) if digest else saved or previous))

    def save(
        self, checkpoint: Checkpoint, epoch: str, back: bool = False, placement: Placement | None = None
    ) -> Written:
        """Keep this checkpoint and the one before it."""
        return the_only(self._save_each([(checkpoint, epoch)], placement, back))

    def replace(self, checkpoint: Checkpoint, epoch: str, reread: int, placement: Placement | None = None) -> Written:
        return the_only(self._save_each([(checkpoint, epoch)], placement, back=True, reread=reread))

    def save_all(
        self, saves: Sequence[tuple[Checkpoint, str]], placement: Placement | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        return self._save_each(saves, placement)

    def _save_each(
        self,
        saves: Sequence[tuple[Checkpoint, str]],
        placement: Placement | None,
        back: bool = False,
        reread: int | None = None,
    ) -> list[Written | CorruptError | StoreLost]:
        models = [checkpoint.model for checkpoint, _ in saves]
        placed = placement.encode() if placement else b""
        with self._asking(models) as (pipeline, outcomes):
            for checkpoint, epoch in saves:
                keys, data = self._keys.model(checkpoint.model), checkpoint.to_bytes()
                home, offset, digest = Saved.of(checkpoint, data)
                names = [keys.epoch, keys.checkpoint, keys.previous, keys.newest]
                names += [self._keys.placement(home[0]), self._keys.mark(Partition(*home)), self._keys.replacements]
                values = [epoch, *home, offset, checkpoint.version, digest, data, int(back), placed]
                run(pipeline, self._save, names, [*values, "" if reread is None else reread])
        return [self._written(outcome, model) for model, outcome in zip(models, outcomes, strict=True)]

    def models(self) -> list[str]:
        with reaching(self._where):
            names = self._client.smembers(self._keys.models)
        return sorted(read_names(names))

    def delete(self, model: str) -> None:
        """Delete a model in one step. Its owner gets StoreLost; whoever claims it from then on begins it again."""
        keys, names = self._keys.model(model), self._keys.models
        with reaching(self._where, model):
            self._delete(
                [names, keys.history, keys.epoch, keys.checkpoint, keys.previous, keys.current, keys.newest],
                [model, keys.snapshots, keys.updates],
            )

    def publish(self, snapshot: Snapshot, epoch: str, withheld: str = "", assumed: Assumed | None = None) -> Written:
        """Keep the snapshot, and make it live unless the pointer is pinned or a reason to withhold it is given."""
        return the_only(self.publish_all([(snapshot, epoch, withheld)], assumed))

    def publish_all(
        self, publications: Sequence[tuple[Snapshot, str, str]], assumed: Assumed | None = None
    ) -> list[Written | CorruptError | StoreLost]:
        """Publish each of these. Now and then, drop what need not stay."""
        models = [snapshot.model for snapshot, _, _ in publications]
        placement = self._keys.placement(assumed.topic_id if assumed else "")
        placed = assumed.placement.encode() if assumed else b""
        with self._asking(models) as (pipeline, outcomes):
            for snapshot, epoch, withheld in publications:
                keys, (data, digest) = self._keys.model(snapshot.model), snapshot.packed()
                key = snapshot.version, digest
                names = [keys.epoch, keys.current, keys.newest, keys.history, keys.snapshot(*key), placement]
                run(pipeline, self._publish, names, [epoch, *key, data, withheld, keys.updates, placed])
        for model, outcome in zip(models, outcomes, strict=True):
            if outcome == Written.STORED.encode() and next(self._publications[model]) % SPARE == 0:
                with reaching(self._where, model):
                    self._thin_out(model)
        return [self._written(outcome, model) for model, outcome in zip(models, outcomes, strict=True)]

    def current(self, model: str) -> Pointer | None:
        return self.current_all([model])[0]

    def current_all(self, models: Sequence[str]) -> list[Pointer | None]:
        with self._asking([None, None, *models]) as (pipeline, answers):
            pipeline.get(self._keys.store).get(self._keys.format)
            for model in models:
                pipeline.hgetall(self._keys.model(model).current)
        store_id, number, *pointers = answers
        self._check_format(number)
        return [read_pointer(fields, store_id) if fields else None for fields in pointers]

    def load(self, model: str, version: int | None = None) -> tuple[Pointer, Snapshot] | None:
        """The live snapshot, or the kept one of ``version``."""
        before = None
        while True:
            pointer = self._pointer(model, version)
            if pointer is None:
                return None
            with reaching(self._where, model):
                data = self._client.get(self._keys.model(model).snapshot(*pointer.snapshot))
            if data is not None:
                return pointer, read_snapshot(model, pointer, data, self._where)
            if pointer == before:
                raise bytes_gone(model, pointer, self._where)
            # It may have been dropped since we looked, so we look again.
            before = pointer

    def history(self, model: str) -> list[dict[str, Any]]:
        """Publications whose snapshots are kept, and moves of the pointer, oldest first."""
        with reaching(self._where, model):
            return [entry.as_history() for _, entry in self._entries(model)]

    def note(self, model: str, epoch: str, what: str, reason: str) -> Written:
        """Add a remark about the live snapshot to the history."""
        keys = self._keys.model(model)
        with reaching(self._where, model):
            outcome = self._note([keys.epoch, keys.current, keys.history], [epoch, what, reason, keys.updates])
        return the_only([self._written(outcome, model)])

    def drop_earlier(self, snapshot: Snapshot, epoch: str) -> Written:
        """Keep only the newest checkpoint, and this snapshot with its entry."""
        keys = self._keys.model(snapshot.model)
        with reaching(self._where, snapshot.model):
            names = [keys.epoch, keys.current, keys.previous, keys.history]
            outcome = self._drop_earlier(names, [epoch, snapshot.version, snapshot.digest, keys.snapshots])
        return the_only([self._written(outcome, snapshot.model)])

    def move(self, model: str, version: int | None, pin: bool, why: Why = NOBODY) -> Pointer:
        """Point at the newest kept snapshot (of ``version``), and pin or unpin."""
        keys, moved = self._keys.model(model), None
        with reaching(self._where, model):
            # A publication may come between the look and the move.
            for attempt in range(ATTEMPTS):
                live, journal = self.current(model), self._entries(model)
                entries = [entry for _, entry in journal]
                target = destination(entries, version, live)
                if target is None:
                    break
                what = kind_of_move(live, target.version, pin)
                # The last attempt accepts whatever the history has become.
                seen = journal[-1][0] if attempt + 1 < ATTEMPTS else b""
                # Whoever tries again although the rollback was made goes one version further back.
                with changing(self._where, model, f"look at omdml history {model} before you try again"):
                    moved = self._move(
                        [keys.current, keys.history, keys.snapshot(*target.snapshot)],
                        [*target.snapshot, target.epoch, what, int(pin), keys.updates, seen, *why],
                    )
                if moved is not None:
                    break
            if not moved:
                versions = [entry.version for entry in entries if entry.what in PUBLICATIONS]
                raise not_kept(model, version, versions, self._where)
            return read_pointer(dict(zip(moved[::2], moved[1::2], strict=True)), self._client.get(self._keys.store))

    def watch(self, models: Iterable[str]) -> Watch:
        """Subscribe to the moves of these models' pointers."""
        return RedisWatch(self._url, {model: self._keys.model(model).updates for model in models})

    def _pointer(self, model: str, version: int | None) -> Pointer | None:
        """The live pointer, or that to the publication that ``version`` stands for."""
        live = self.current(model)
        if version is None or (live and live.version == version):
            return live
        with reaching(self._where, model):
            entry = destination((entry for _, entry in self._entries(model)), version, live)
            store_id = self._client.get(self._keys.store) or b""
        return entry.pointer(store_id.decode(errors="replace")) if entry else None

    def _entries(self, model: str) -> list[tuple[bytes, JournalEntry]]:
        return [(number, read_entry(fields)) for number, fields in self._client.xrange(self._keys.model(model).history)]

    def _thin_out(self, model: str) -> None:
        keys, entries = self._keys.model(model), self._entries(model)
        snapshots, moves = superfluous(entries, self.current(model), self.retention.of(model))
        with self._asking([model] * (len(snapshots) + bool(moves))) as (pipeline, _):
            for snapshot, numbers in snapshots.items():
                names = [keys.current, keys.history, keys.snapshot(*snapshot)]
                run(pipeline, self._drop, names, [*snapshot, entries[-1][0], *numbers])
            if moves:
                pipeline.xdel(keys.history, *moves)

    def _written(self, outcome: bytes, model: str) -> Written | StoreLost:
        if outcome == scripts.LOST:
            return store_lost(model, self._where)
        return Written(outcome.decode())


def publication_counter() -> Iterator[int]:
    """Count publications, from a random number below ``SPARE`` on, because a round of thinning out comes every SPARE.

    From 0, each worker's first publication of a model would begin with a round. From 1, workers that are often
    restarted would never do one.
    """
    return itertools.count(secrets.randbelow(SPARE))
