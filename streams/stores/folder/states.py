"""Reads checkpoints and snapshots of a store in a folder, and refuses files that cannot be one."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from omdml.streams.bounded_files import STATE_BYTES, Unfit, opened, read_regular

log = structlog.get_logger(__name__)


def read_state(path: Path) -> bytes:
    """The bytes of a checkpoint or a snapshot. If the file cannot be one, they are empty, and the log has an error.

    The first bytes of safetensors say how long their header is. If the file is too short for it, no more is read.
    """
    try:
        with opened(path) as file:
            begin, size = file.read(9), os.fstat(file.fileno()).st_size
        header = int.from_bytes(begin[:8], "little")
        return read_regular(path, STATE_BYTES) if begin[8:] == b"{" and header <= size - 8 else begin
    except Unfit as error:
        log.error("state_file_unfit", file=str(path), reason=error.strerror, action="treated as damaged")
        return b""
