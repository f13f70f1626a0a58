"""A store in Redis or Valkey, which any client in any language can read.

=====================================================  =============================================================
``omdml:{shop}:snapshot:<version>:<digest>``           safetensors (omdml/snapshot.py)
``omdml:{shop}:current``                               hash: serial, version, digest, epoch, published_at, pinned
``omdml:{shop}:history``                               stream: publications whose snapshots are kept, and moves
``omdml:{shop}:updates``                               channel: a serial whenever the history grows, as a hint
``omdml:{shop}:newest``                                hash: version, digest, epoch of the last publication
``omdml:{shop}:checkpoint``, ``:checkpoint:previous``  hash: data, home_topic, home_partition, next, version, digest,
                                                       epoch; damaged where the newest could not be read
``omdml:{shop}:epoch``                                 who owns the model: counter and nonce
``omdml:mark:<topic id>:<partition>``                  an offset
``omdml:models``, ``omdml:store``                      set of names; the store's random id
=====================================================  =============================================================

The name of a model is percent-encoded and, in braces, decides the slot of a cluster.
"""

from __future__ import annotations

import itertools
import secrets
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from omdml.errors import StoreError
from omdml.snapshot import Checkpoint, Snapshot
from streams import redis_scripts as scripts
from streams.journal import PUBLICATIONS, Entry, kind_of_move, newest_publication, superfluous
from streams.protocols import Claim, Partition, Pointer, Watch, Written
from streams.redis_client import connect, masked, reaching
from streams.redis_watch import RedisWatch
from streams.resume import Saved, bytes_gone, none_valid, not_kept, read_checkpoint, read_snapshot, store_lost
from streams.retention import RETENTION, SPARE, Retention

UNPUBLISHED_S = 600  # bytes that no script made permanent vanish after so long
ATTEMPTS = 3


class Keys:
    """Where everything about a model lies."""

    def __init__(self, prefix: str, model: str) -> None:
        self._model = f"{prefix}:{{{quote(model, safe='')}}}"
        self.epoch = f"{self._model}:epoch"
        self.checkpoint = f"{self._model}:checkpoint"
        self.previous = f"{self._model}:checkpoint:previous"
        self.current = f"{self._model}:current"
        self.newest = f"{self._model}:newest"
        self.history = f"{self._model}:history"
        self.updates = f"{self._model}:updates"

    def snapshot(self, version: int, digest: str) -> str:
        """Where the bytes of a snapshot lie."""
        return f"{self._model}:snapshot:{version}:{digest}"


class RedisStore:
    """A CheckpointStore and SnapshotStore; any number of processes and threads may use it.

    Parameters
    ----------
    url
        ``redis://user:password@host:6379/0``; ``rediss://`` with TLS, ``valkey://`` and ``valkeys://`` alike.
    prefix
        First part of every key.
    retention
        Which snapshots stay when new ones come.

    Raises
    ------
    ConfigurationError
        The URL is none.
    StoreError
        From every method, within seconds: the server is out of reach, or refuses.
    """
