"""The files that a model is stored in: a Checkpoint to resume learning, and a Snapshot to serve queries.

Both are safetensors files with one metadata key that holds JSON. The JSON has a sha256 of the tensors and one of
itself, because safetensors has no checksum and would let a damaged value pass. Nothing is pickled, so clients in any
language can read them.

A checkpoint holds two such files, the learner's state and a metric. Of these it hashes the headers only, because each
header seals the rest of its file. So every byte is hashed once, and checked when the checkpoint is read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from omdml.errors import CorruptError
from omdml.formats import CHECKPOINT, SNAPSHOT, STATE, Format
from omdml.metrics.base import Metric, metric_from_tensors
from omdml.tensor_bytes import to_safetensors

Tensors = dict[str, NDArray[Any]]
KEY = "omdml"
# The fields of a checkpoint that hold files.
FILES = ("state", "reference")
# The first number of the checkpoints' format with which only the headers of these files are hashed, not all bytes.
HEADERS_ONLY = 3
# How many names, types and shapes of arrays are remembered as text.
LABELS = 1024
# Errors that can occur if JSON does not have the expected fields.
UNLIKE = (KeyError, TypeError, AttributeError, ValueError, RecursionError)


class Opened(bytes):
    """The bytes of a file in a checkpoint. If a check has loaded the contents, the first reader need not do so again.

    Later readers load them, because the first one may have changed the arrays.
    """

    contents: tuple[Tensors, dict[str, Any]] | None = None

    def take(self) -> tuple[Tensors, dict[str, Any]]:
        """The contents: those that the check has loaded, if nobody has taken them yet, otherwise loaded now."""
        contents, self.contents = self.contents, None
        return contents or _checked(self, STATE)


def pack(
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, Any],
    kind: Format = STATE,
    sha256: str = "",
) -> bytes:
    """Turn arrays and metadata, which JSON can hold, into bytes: the same input gives the same bytes.

    Every format keeps ``format`` and ``check`` in its metadata, whatever its number, so that the number can be trusted.
    The keys of the metadata keep their order. ``sha256`` is the digest of the tensors, if the caller has it already.
    """
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    body = _encode({"format": kind.number, "sha256": sha256 or digest(contiguous), **metadata})
    check = hashlib.sha256(body.encode()).hexdigest()
    return to_safetensors(contiguous, {KEY: f'{body[:-1]},"check":"{check}"}}'})


def _encode(body: Mapping[str, Any]) -> str:
    # The hook writes numpy's numbers and arrays.
    return msgspec.json.encode(body, enc_hook=lambda array: array.tolist()).decode()


def unpack(data: bytes, kind: Format = STATE) -> tuple[Tensors, dict[str, Any]]:
    """The inverse of :func:`pack`.

    Raises
    ------
    CorruptError
        The bytes are not safetensors, have no omdml metadata, a different checksum, or a floating value that is not
        finite. FormatError, a subclass: another release wrote them, and this one cannot read them.
    """
    tensors, metadata = data.take() if isinstance(data, Opened) else _checked(data, kind)
    for name, tensor in tensors.items():
        if tensor.dtype.kind == "f" and not np.isfinite(tensor).all():
            raise CorruptError(f"{kind.what}: tensor {name!r} holds values that are not finite")
    return tensors, metadata


def _checked(data: bytes | memoryview, kind: Format, files: Collection[str] = ()) -> tuple[Tensors, dict[str, Any]]:
    """Tensors and metadata of a packed file; raises CorruptError unless they are what was written.

    Of the tensors named in ``files``, which are packed files themselves, only the headers are checked.
    """
    what = kind.what
    if not isinstance(data, bytes | bytearray | memoryview):
        raise CorruptError(f"{what}: got {type(data).__name__}, expected bytes")
    try:
        tensors = load(bytes(data))
        header = msgspec.json.decode(header_of(data)[8:])
        metadata = msgspec.json.decode(header["__metadata__"][KEY])
        check = metadata.pop("check")
    except (SafetensorError, msgspec.DecodeError, *UNLIKE) as error:
        message = f"{what}: its {len(data)} bytes are not safetensors that omdml wrote ({error}): damaged"
        raise CorruptError(message) from error
    if hashlib.sha256(_encode(metadata).encode()).hexdigest() != check:
        raise CorruptError(f"{what}: its metadata is not what was written: damaged")
    kind.check(metadata.get("format"), what)
    if metadata["format"] < HEADERS_ONLY:
        files = ()
    if digest(tensors, files) != (expected := metadata.get("sha256")):
        raise CorruptError(
            f"{what}: sha256 of the tensors is {digest(tensors, files)}, its metadata says {expected}: damaged"
        )
    return tensors, metadata


def _opened(data: memoryview, is_sealed: bool) -> bytes:
    """A file in a checkpoint. If the checkpoint hashed only its header (``is_sealed``), its rest is checked here."""
    file = Opened(data)
    if is_sealed and len(header_of(data)) < len(data):
        file.contents = _checked(file, STATE)
    return file


def header_of(data: bytes | memoryview) -> memoryview:
    """The first bytes of a packed file, which hold the digest of the rest; all bytes, if it is no such file."""
    return memoryview(data)[: 8 + int.from_bytes(data[:8], "little")]


def digest(tensors: Mapping[str, NDArray[Any]], files: Collection[str] = ()) -> str:
    """Sha256 over names, types, shapes and bytes, in the order of the names; of ``files`` over their headers only."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(_label(name, tensor.dtype, tensor.shape))
        content = np.ascontiguousarray(tensor).data
        total.update(header_of(content) if name in files else content)
    return total.hexdigest()


@lru_cache(LABELS)
def _label(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What is hashed of an array beside its bytes. It is cached: to write it takes longer than to hash a small one."""
    return f"{name}:{dtype.str}:{shape}".encode()


def metric_to_bytes(metric: Metric) -> bytes:
    """A metric alone as safetensors, without the other fields of a snapshot."""
    tensors, description = metric.to_tensors()
    return pack(tensors, {"metric": {"kind": metric.kind, **description}})


def metric_from_bytes(data: bytes) -> Metric:
    """The metric in these bytes; raises CorruptError."""
    tensors, metadata = unpack(data)
    try:
        return metric_from_tensors(metadata["metric"]["kind"], tensors, metadata["metric"])
    except UNLIKE as error:
        raise CorruptError(f"metric: its fields do not fit its kind ({error}): damaged") from error


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is needed to resume the learning of one model, in one object that is written atomically.

    ``home`` is the partition (topic id, number) with the model's events. ``next`` is the offset after the last event
    that was taken from it, whether learned or made a dead letter. ``state`` is the learner's ``to_bytes()``, open block
    included. ``reference`` is the metric that the guard compares candidates with (:func:`metric_to_bytes`).
    """

    model: str
    home: tuple[str, int]
    next: int
    version: int
    generation: str
    configuration: str
    platform: str
    event_time: float | None
    progress: dict[str, Any]
    state: bytes
    reference: bytes = b""

    def to_bytes(self) -> bytes:
        """Write safetensors: state and reference as tensors of bytes, everything else as metadata."""
        metadata = {name: getattr(self, name) for name in self.__struct_fields__ if name not in FILES}
        tensors = {name: np.frombuffer(getattr(self, name), np.uint8) for name in FILES}
        return pack(tensors, {"checkpoint": metadata}, CHECKPOINT, digest(tensors, FILES))

    @classmethod
    def from_bytes(cls, data: bytes) -> Checkpoint:
        """The checkpoint in these bytes; raises CorruptError."""
        tensors, metadata = _checked(data, CHECKPOINT, FILES)
        sealed = metadata["format"] >= HEADERS_ONLY
        files = {name: _opened(tensors[name].data, sealed) for name in FILES if name in tensors}
        try:
            return msgspec.structs.replace(msgspec.convert({**metadata["checkpoint"], **files}, cls), **files)
        except (msgspec.ValidationError, *UNLIKE) as error:
            raise CorruptError(f"checkpoint: its fields are not those of a checkpoint ({error}): damaged") from error


class Trail(msgspec.Struct, frozen=True, array_like=True):
    """Times of the events that a publication was the first to contain, in seconds since the epoch.

    ``version`` is the publication's, and ``events`` the number of these events. ``oldest`` is the event time of the
    oldest of them. ``taken`` and ``learned`` say when a worker took the first of them, and when it had learned it.
    ``trace`` is the trace context (W3C) of the first of them that has one, otherwise empty.
    """

    version: int
    events: int
    oldest: float
    taken: float
    learned: float
    trace: str = ""

    def with_later(self, later: Trail) -> Trail:
        """A single trail for the events of this one and of a later one."""
        return Trail(
            later.version,
            self.events + later.events,
            min(self.oldest, later.oldest),
            self.taken,
            self.learned,
            self.trace or later.trace,
        )


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable metric with its provenance: what a node serves.

    ``event_time`` is the time of the newest event learned, and ``oldest_event_time`` that of the oldest event which no
    earlier publication contained; both in seconds since the epoch, or None if the events had no time. ``trails`` has
    the times of the events of this publication and of some before it, oldest first. With these a node that skipped a
    publication can measure the freshness of its events, too. ``vector`` is for models that are learned in parts. It
    says how far each part was, such as ``0:120,1:98``: partitions, and the offsets after the last event taken there.
    """

    model: str
    learner: str
    version: int
    generation: str
    event_time: float | None
    oldest_event_time: float | None
    progress: dict[str, Any]
    metric: Metric
    trails: tuple[Trail, ...] = ()
    vector: str = ""

    def to_bytes(self) -> bytes:
        """Write safetensors: the metric's tensors, everything else as metadata."""
        return self.packed()[0]

    def packed(self) -> tuple[bytes, str]:
        """The bytes of :meth:`to_bytes`, and the digest."""
        metadata = {name: getattr(self, name) for name in self.__struct_fields__ if name != "metric"}
        if not self.vector:
            # Most models have no vector. Their bytes stay what they were before snapshots had this field.
            del metadata["vector"]
        tensors, description = self.metric.to_tensors()
        described = {"snapshot": metadata, "metric": {"kind": self.metric.kind, **description}}
        sha256 = digest(tensors)
        return pack(tensors, described, SNAPSHOT, sha256), _with_generation(sha256, self.generation)

    @property
    def digest(self) -> str:
        """Sha256 of the metric's tensors and the catalogue's generation. It does not depend on when it is published."""
        return _with_generation(digest(self.metric.to_tensors()[0]), self.generation)

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """The snapshot in these bytes; raises CorruptError."""
        tensors, metadata = unpack(data, SNAPSHOT)
        try:
            metric = metric_from_tensors(metadata["metric"]["kind"], tensors, metadata["metric"])
            return msgspec.convert({**metadata["snapshot"], "metric": metric}, cls)
        except (msgspec.ValidationError, *UNLIKE) as error:
            raise CorruptError(f"snapshot: its fields are not those of a snapshot ({error}): damaged") from error


def _with_generation(sha256: str, generation: str) -> str:
    return hashlib.sha256(f"{sha256} {generation}".encode()).hexdigest()
