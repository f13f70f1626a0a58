"""What all stores do alike with snapshots: which bytes are sound, what to do if there are none."""

from __future__ import annotations

from omdml.errors import CorruptError, FormatError, NotKept, SnapshotGone
from omdml.snapshot import Snapshot
from omdml.streams.protocols.store import Pointer


def not_kept(model: str, version: int | None, versions: list[int], where: str) -> NotKept:
    """The error for a version that nobody can go to."""
    problem = "no snapshot is kept" if version is None else f"no snapshot of version {version} is kept"
    return NotKept(
        f"model {model!r}: {problem} in {where}. Versions kept: {', '.join(map(str, sorted(versions))) or 'none'}"
    )


def bytes_gone(model: str, pointer: Pointer, where: str) -> SnapshotGone:
    """The pointer names a snapshot that is not there."""
    return SnapshotGone(
        f"model {model!r}: {where} points at version {pointer.version} ({pointer.digest[:12]}), whose bytes are gone: "
        "something else removed them (eviction, cleaning up). Go back to another version"
    )


def read_snapshot(model: str, pointer: Pointer, data: bytes, where: str) -> Snapshot:
    """The snapshot in these bytes; raises CorruptError if they are damaged or another one's."""
    try:
        snapshot = Snapshot.from_bytes(data)
        if (snapshot.model, snapshot.version) != (model, pointer.version):
            raise CorruptError(f"snapshot of model {snapshot.model!r}, version {snapshot.version}, in its place")
    except FormatError as error:
        raise FormatError(f"model {model!r}: version {pointer.version} in {where}: {error}") from error
    except CorruptError as error:
        raise CorruptError(
            f"model {model!r}: version {pointer.version} in {where}: {error}: go back to another version"
        ) from error
    return snapshot
