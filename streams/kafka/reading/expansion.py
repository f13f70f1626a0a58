"""Size of a compressed batch, measured without keeping its content: a megabyte of zstd can hold gigabytes."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator

import lz4.frame
import zstandard

# As the attributes of a batch number them.
GZIP, LZ4, ZSTD = 1, 3, 4
# The largest batch: a hundred times what a topic takes by default.
MAX_EXPANDED_BYTES = 128 << 20
PIECE_BYTES = 1 << 20
# What deflate makes of a byte at most: the most of all codecs that have a bound (snappy 22, lz4 255).
MOST_PER_BYTE = 1032


def too_large(codec: int, data: memoryview, limit: int = MAX_EXPANDED_BYTES) -> bool:
    """Whether these compressed records expand to more bytes than the limit; no more than that are expanded."""
    if codec != ZSTD and len(data) * MOST_PER_BYTE <= limit:
        return False
    size = 0
    for piece in _pieces(codec, data):
        size += piece
        if size > limit:
            return True
    return False


def _pieces(codec: int, data: memoryview) -> Iterator[int]:
    """Sizes of the expanded pieces, one after the other; none for snappy, which never expands much."""
    if codec == ZSTD:
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True) as reader:
            while piece := reader.read(PIECE_BYTES):
                yield len(piece)
    elif codec == LZ4:
        lz4_reader = lz4.frame.LZ4FrameDecompressor()
        piece = lz4_reader.decompress(data, PIECE_BYTES)
        while piece or not (lz4_reader.eof or lz4_reader.needs_input):
            yield len(piece)
            piece = b"" if lz4_reader.eof else lz4_reader.decompress(b"", PIECE_BYTES)
    elif codec == GZIP:
        unread: bytes | memoryview = data
        # Several members may follow each other, and all of them are expanded.
        while unread:
            reader_z = zlib.decompressobj(zlib.MAX_WBITS | 16)
            while unread and not reader_z.eof:
                yield len(reader_z.decompress(unread, PIECE_BYTES))
                unread = reader_z.unconsumed_tail
            unread = reader_z.unused_data
