"""Where everything lies in Redis, and how pointers and entries of the history are read back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple
from urllib.parse import quote

from omdml.errors import StoreError, quoted
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import ModelPosition, Pointer
from omdml.streams.stores.journal import JournalEntry


class StoreKeys:
    """Keys of a store; ``prefix`` begins each of them."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.store = f"{prefix}:store"
        self.models = f"{prefix}:models"
        self.format = f"{prefix}:format"
        self.replacements = f"{prefix}:replacements"
        # Not "prefix:secret": rights go by the beginning of a key, and nodes may read what begins with "prefix:".
        self.secret = f"{prefix}-secret"

    def mark(self, partition: Partition) -> str:
        """The key of a partition's mark."""
        return f"{self._prefix}:mark:{partition.topic_id}:{partition.number}"

    def placement(self, topic_id: str) -> str:
        """The key of the placement of a log's models."""
        return f"{self._prefix}:placement:{topic_id}"

    def group(self, topic_id: str) -> str:
        """The key of the group that reads a log."""
        return f"{self._prefix}:group:{topic_id}"

    def model(self, name: str) -> ModelKeys:
        return ModelKeys(f"{self._prefix}:{{{quote(name, safe='')}}}")


class ModelKeys:
    """Keys of a model; what is in braces decides the slot of a cluster, so that scripts may touch all of them."""

    def __init__(self, start: str) -> None:
        self.epoch = f"{start}:epoch"
        self.checkpoint = f"{start}:checkpoint"
        self.previous = f"{start}:checkpoint:previous"
        self.current = f"{start}:current"
        self.newest = f"{start}:newest"
        self.history = f"{start}:history"
        self.updates = f"{start}:updates"
        self.snapshots = f"{start}:snapshot:"

    def snapshot(self, version: int, digest: str) -> str:
        """The key of a snapshot's bytes."""
        return f"{self.snapshots}{version}:{digest}"


class ClaimAnswer(NamedTuple):
    """What the script CLAIM answers.

    ``data``, ``digest`` and ``damaged`` are the newest checkpoint's. ``saved`` is the digest of the checkpoint that was
    saved last. ``before`` is the checkpoint before the newest, if there is no newest one.
    """

    epoch: bytes
    data: bytes | None
    digest: bytes | None
    damaged: bytes | None
    saved: bytes | None
    before: bytes | None

    @property
    def replaced(self) -> bool:
        """Whether another checkpoint than the one saved last is in its place."""
        return replaced(self.saved, self.digest)


def replaced(saved: bytes | None, digest: bytes | None) -> bool:
    """Whether the checkpoint of this digest is another one than the one saved last. Earlier releases noted just 1."""
    return saved not in (None, b"1", digest)


def read_names(names: Iterable[bytes]) -> Iterator[str]:
    """Names of models. Names that another client has put there, and that are no text, are left out."""
    for name in names:
        with suppress(UnicodeDecodeError):
            yield name.decode()


def read_pointer(fields: Mapping[bytes, bytes], store_id: bytes | None) -> Pointer:
    """The pointer in the hash ``current``; raises StoreError if it is none."""
    with understanding(fields):
        return Pointer(
            serial=int(fields[b"serial"]),
            version=int(fields[b"version"]),
            digest=fields[b"digest"].decode(),
            epoch=fields[b"epoch"].decode(),
            published_at=float(fields[b"published_at"]),
            pinned=fields[b"pinned"] == b"1",
            store_id=(store_id or b"").decode(errors="replace"),
        )


def read_position(fields: Sequence[bytes]) -> ModelPosition:
    """The position in the first three fields of a checkpoint; raises StoreError if they are none."""
    topic, partition, offset = fields[:3]
    with understanding(fields):
        return ModelPosition(Partition(topic.decode(), int(partition)), int(offset))


def read_entry(fields: Mapping[bytes, bytes]) -> JournalEntry:
    """The entry in these fields of the stream ``history``; raises StoreError if they are none."""
    with understanding(fields):
        return JournalEntry(
            what=fields[b"what"].decode(),
            version=int(fields[b"version"]),
            digest=fields[b"digest"].decode(),
            epoch=fields[b"epoch"].decode(),
            at=float(fields[b"at"]),
            serial=int(fields[b"serial"]),
            pinned=fields[b"pinned"] == b"1",
            reason=fields.get(b"reason", b"").decode(),
            actor=fields.get(b"actor", b"").decode(),
        )


@contextmanager
def understanding(what: object) -> Iterator[None]:
    """Turn what does not decode into a StoreError that shows it."""
    try:
        yield
    except (KeyError, ValueError, TypeError) as error:
        raise StoreError(
            f"the store holds {quoted(what, 200)}, which omdml did not write ({quoted(error)}): restore or "
            "remove that key"
        ) from error
