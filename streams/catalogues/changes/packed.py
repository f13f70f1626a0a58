"""Changes that were made together, as they lie in Redis: how many ids were listed before them, a space, MessagePack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from omdml.streams.catalogues.changes.change import ChangeEntry, Vectors
from omdml.streams.catalogues.matrix import DTYPE

# A change says how many ids were listed before it: so every reader numbers rows alike.
APPEND = "return redis.call('RPUSH', KEYS[2], redis.call('LLEN', KEYS[1]) .. ' ' .. ARGV[1])"


class PackedChanges(msgspec.Struct, frozen=True, gc=False):
    """The changes, and the bytes of the rows that they put, for each stored matrix."""

    entries: list[ChangeEntry]
    vectors: dict[str, bytes]


_decoder = msgspec.msgpack.Decoder(PackedChanges)


def pack(entries: Sequence[ChangeEntry], vectors: Vectors) -> bytes:
    """Changes and their vectors as bytes. In the list, the number of ids and a space precede them."""
    rows = {name: matrix.astype(DTYPE).tobytes() for name, matrix in vectors.items()}
    return msgspec.msgpack.encode(PackedChanges(list(entries), rows))


def unpack(data: bytes, dims: Mapping[str, int]) -> tuple[int, list[ChangeEntry], dict[str, NDArray[np.float32]]]:
    """How many ids were listed before, the changes, and their rows (rows, d) of each stored matrix if they put any.

    Raises ValueError for damage.
    """
    listed, _, packed = data.partition(b" ")
    try:
        changes = _decoder.decode(packed)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
    rows = sum(entry.put for entry in changes.entries)
    if rows and changes.vectors.keys() != dims.keys():
        raise ValueError(f"vectors of {sorted(changes.vectors)}, expected {sorted(dims)}")
    vectors = {name: np.frombuffer(blob, DTYPE).reshape(rows, dims[name]) for name, blob in changes.vectors.items()}
    return int(listed), changes.entries, vectors
