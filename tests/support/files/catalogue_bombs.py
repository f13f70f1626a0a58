"""Sources of catalogues that are small and claim to be huge, and builds from them in bounded memory."""

from __future__ import annotations

import resource
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
from pyarrow import parquet

from omdml.workers.cli import main
from tests.support.forks import ended

Bomb = Callable[[Path], Path]
PIECE = 1 << 24


def header(shape: str, descr: str = "<f4", fortran: bool = False) -> bytes:
    """The beginning of a .npy file that claims this shape."""
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text


def archive(path: Path, **members: bytes) -> Path:
    """An archive of these arrays, compressed."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in members.items():
            file.writestr(f"{name}.npy", data)
    return path


def zeros(path: Path, start: bytes, count: int, member: str = "v") -> Path:
    """An archive of an array of these first bytes, followed by ``count`` zeros.

    A piece of zeros is compressed once, and repeated: after a full flush each piece can be read without the others.
    """
    piece = bytes(PIECE)
    data = deflated(start) + deflated(piece) * (count // PIECE) + deflated(bytes(count % PIECE), zlib.Z_FINISH)
    checksum = zlib.crc32(start)
    for _ in range(count // PIECE):
        checksum = zlib.crc32(piece, checksum)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{member}.npy", data)
        (entry,) = file.infolist()
        # The directory, which is written last, says what the bytes are.
        entry.compress_type, entry.file_size = zipfile.ZIP_DEFLATED, len(start) + count
        entry.CRC = zlib.crc32(bytes(count % PIECE), checksum)
    return path


def deflated(data: bytes, flush: int = zlib.Z_FULL_FLUSH) -> bytes:
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush(flush)


def a_trillion_rows(folder: Path) -> Path:
    return archive(folder / "i.npz", v=header(f"({10**12}, 4)") + bytes(64))


def a_trillion_rows_in_a_npy(folder: Path) -> Path:
    (folder / "v.npy").write_bytes(header(f"({10**12}, 4)") + bytes(64))
    return folder / "v.npy"


def ids_that_expand(folder: Path) -> Path:
    path = zeros(folder / "i.npz", header(f"({(1 << 28) + 1},)", "<U1"), (1 << 30) + 4, "ids")
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("v.npy", header("(1, 4)") + bytes(16))
    return path


def a_row_of_many_numbers(folder: Path) -> Path:
    return zeros(folder / "i.npz", header(f"(2, {1 << 24})"), 1 << 27)


def an_array_in_fortran_order(folder: Path) -> Path:
    return zeros(folder / "i.npz", header(f"({(1 << 26) + 1}, 4)", fortran=True), (1 << 30) + 16)


def an_endless_header(folder: Path) -> Path:
    return zeros(folder / "i.npz", b"\x93NUMPY\x02\x00" + (3 << 30).to_bytes(4, "little"), 1 << 27)


def one_id_of_many_bytes(folder: Path) -> Path:
    table = pyarrow.table({"id": ["a" * ((1 << 28) + 1)], "v": [[1.0]]})
    parquet.write_table(table, folder / "i.parquet", compression="zstd", use_dictionary=False, write_statistics=False)
    return folder / "i.parquet"


def a_long_id_in_every_row(folder: Path) -> Path:
    count = 20_000
    ids = pyarrow.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["a" * 1_000_000])
    table = pyarrow.table({"id": ids, "v": pyarrow.array(np.zeros(count))})
    parquet.write_table(table.rename_columns(["id", "v.0"]), folder / "i.parquet", compression="zstd")
    return folder / "i.parquet"


def many_equal_numbers(folder: Path) -> Path:
    count, dim = 33, 1 << 20
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.zeros(count * dim, np.float32)), dim)
    table = pyarrow.table({"id": [str(number) for number in range(count)], "v": lists})
    parquet.write_table(table, folder / "i.parquet", compression="zstd")
    return folder / "i.parquet"


def an_endless_line(folder: Path) -> Path:
    with (folder / "i.csv").open("wb") as file:
        file.truncate(2 << 30)
    return folder / "i.csv"


REFUSED: list[tuple[Bomb, str]] = [
    (a_trillion_rows, "says (1000000000000, 4) float32, 16,000,000,000,000 bytes, but the file has 64"),
    (a_trillion_rows_in_a_npy, "cannot be read as .npy"),
    (ids_that_expand, "array 'ids' has 1,073,741,828 bytes, expected at most 1,073,741,824"),
    (a_row_of_many_numbers, "modality 'v' has 16,777,216 numbers for each item, expected at most 1,000,000"),
    (an_array_in_fortran_order, "1,073,741,840 bytes, expected at most 1,073,741,824: split the file, or save it in C"),
    (an_endless_header, "the header of 'v' has 3,221,225,472 bytes, expected at most 10,000"),
    (one_id_of_many_bytes, "would take 268,4"),
    (a_long_id_in_every_row, "an id of 1,000,000 characters in column 'id', expected at most 512"),
    (many_equal_numbers, "would take"),
    (an_endless_line, "line 1 has more than 16,777,216 characters"),
]


def build(source: Path, target: Path) -> tuple[int, str]:
    """The exit code of ``omdml catalogue build`` in a process of its own with bounded data, and its output."""
    output = source.with_suffix(".said")
    return ended(_build, source, target, output), output.read_text()


def _build(source: Path, target: Path, output: Path) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (LIMIT << 20, LIMIT << 20))
    sys.stdout = sys.stderr = output.open("w")
    main(["catalogue", "build", str(target), str(source)], prog_name="omdml")


# MB of data: the interpreter with numpy, numba and pyarrow takes about half of it.
LIMIT = 1000
