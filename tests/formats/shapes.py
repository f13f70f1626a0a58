"""What two files have in common whose content differs: names of keys, kinds of values, names of files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

# Digests, nonces and counters in names of files and keys.
LONG = re.compile(r"[0-9a-f]{16,}|\d+")


def shape(value: Any) -> Any:
    """The shape of JSON: the keys of an object, the shapes among a list, the kind of anything else."""
    if isinstance(value, dict):
        return {str(key): shape(part) for key, part in sorted(value.items())}
    if isinstance(value, list):
        return sorted({json.dumps(shape(part), sort_keys=True) for part in value})
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__
    return "number"


def of_file(path: Path) -> Any:
    """The shape of one file by its suffix."""
    data = path.read_bytes()
    match path.suffix:
        case ".safetensors" | ".checkpoint":
            return of_safetensors(data)
        case ".json" | ".commit":
            return shape(json.loads(data))
        case ".jsonl":
            return shape([json.loads(line) for line in data.splitlines()])
    return "bytes"


def of_safetensors(data: bytes) -> Any:
    """Tensors by name with type and number of axes, and the shape of the metadata."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    metadata = json.loads(header.pop("__metadata__")["omdml"])
    return {
        "tensors": {name: [tensor["dtype"], len(tensor["shape"])] for name, tensor in sorted(header.items())},
        "metadata": shape(metadata),
    }


def of_folder(folder: Path) -> dict[str, Any]:
    """The shapes of the files by their names, in which ``#`` stands for what differs each time."""
    results: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = LONG.sub("#", path.relative_to(folder).as_posix())
            results[name] = sorted({*results.get(name, []), json.dumps(of_file(path), sort_keys=True)})
    return results
