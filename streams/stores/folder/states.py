"""Reads checkpoints and snapshots of a store in a folder, and refuses files that cannot be one."""

from __future__ import annotations

import os
from pathlib import Path

import structlog

from omdml.streams.bounded_files import STATE_BYTES, Unfit, opened, read_regular

log = structlog.get_logger(__name__)


def read_state(path: Path) -> bytes:
    """A checkpoint or a snapshot; empty, which is damaged, and an error in the log, if that cannot be one.

    Its first bytes say how long its header is: of a file that cannot be safetensors no more is read.
    """
    try:
        with opened(path) as file:
            begin, size = file.read(9), os.fstat(file.fileno()).st_size
        header = int.from_bytes(begin[:8], "little")
        return read_regular(path, STATE_BYTES) if begin[8:] == b"{" and header <= size - 8 else begin
    except Unfit as error:
        log.error("state_file_unfit", file=str(path), reason=error.strerror, action="treated as damaged")
        return b""
