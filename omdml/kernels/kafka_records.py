"""Where the fields of Kafka's records begin and end in the bytes of a batch (format 2 of Kafka's protocol)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from omdml.kernels import Array

# The shift of a varint's last byte, which has one bit of its 64.
LAST_SHIFT = 63
# Columns of a table of records. LENGTH is the record's length without the varint that says it. LATER and OFFSET are its
# distances from the first record of the batch, in milliseconds and in offsets. The others say where its key and its
# value begin and end; they are -1 if it has none.
LENGTH, LATER, OFFSET, KEY, KEY_END, VALUE, VALUE_END = range(7)
COLUMNS = 7


@njit(cache=True)
def varint(data: Array, place: int) -> tuple[Any, int]:
    """The zigzag-encoded number that begins at ``place``, and the place after it.

    If there is no such number, the place lies behind the end of the data.
    """
    number, shift = np.uint64(0), np.uint64(0)
    while 0 <= place < data.shape[0]:
        byte = np.uint64(data[place])
        place += 1
        if shift == LAST_SHIFT and byte > 1:
            break
        number |= (byte & np.uint64(0x7F)) << shift
        if byte < 0x80:
            return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1)), place
        shift += np.uint64(7)
    return 0, data.shape[0] + 1


# Bytes are read-only. With a signature, numba compiles a function when its module is loaded, not at the first poll.
BYTES = types.Array(types.uint8, 1, "C", readonly=True)


@njit(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64[:, ::1]), cache=True)
def records_without_headers(data: Array, begin: int, table: Array) -> tuple[int, int]:
    """Find the fields of records that follow each other and have no headers.

    Parameters
    ----------
    data : (n,)
        The bytes of a batch, decompressed.
    begin
        Where the first record begins.
    table : (records, COLUMNS)
        Written: one row for each record.

    Returns
    -------
    How many records were found, and where the next one begins. That one has headers, is damaged, or is not there.
    """
    for index in range(table.shape[0]):
        length, place = varint(data, begin)
        end = place + length
        attributes, place = varint(data, place)
        later, place = varint(data, place)
        offset, place = varint(data, place)
        key_size, key = varint(data, place)
        key_end = key + max(key_size, 0)
        value_size, value = varint(data, key_end)
        value_end = value + max(value_size, 0)
        # After the value comes the number of headers. A place behind the end means that a field was damaged.
        fits = value <= value_end < data.shape[0] and value_end + 1 == end
        if not fits or attributes != 0 or data[value_end] != 0:
            return index, begin
        row = table[index]
        row[LENGTH], row[LATER], row[OFFSET] = length, later, offset
        row[KEY], row[KEY_END] = (key, key_end) if key_size >= 0 else (-1, -1)
        row[VALUE], row[VALUE_END] = (value, value_end) if value_size >= 0 else (-1, -1)
        begin = end
    return table.shape[0], begin
