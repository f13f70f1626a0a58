"""How far each part is in a model that is learned in parts."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from omdml.errors import ConfigurationError, CorruptError, ParameterError, quoted
from omdml.snapshot import Checkpoint
from omdml.streams.protocols.log import Partition

# Under this name a whole model's checkpoint keeps its record.
KEY = "parts"
FORM = re.compile(r"(\d{1,9}):(\d{1,18})")


class Component(msgspec.Struct, frozen=True, array_like=True):
    """One part: the number of its partition, the offset after the last event it took, and what it has learned."""

    number: int
    next: int
    version: int = 0


class Vector(msgspec.Struct, frozen=True):
    """Positions of parts, in the order of their numbers. A part that has no checkpoint has none.

    Examples
    --------
    >>> earlier, later = Vector.of_text("0:7,2:5"), Vector.of_text("0:7,1:3,2:6")
    >>> str(later), later.reaches(earlier), earlier.reaches(later)
    ('0:7,1:3,2:6', True, False)
    """

    parts: tuple[Component, ...] = ()

    def __str__(self) -> str:
        return ",".join(f"{part.number}:{part.next}" for part in self.parts)

    @classmethod
    def of_text(cls, text: str) -> Vector:
        """The positions that such a text names, ``0:120,1:98``; raises ParameterError for any other text."""
        positions: dict[int, int] = {}
        for piece in text.split(","):
            match = FORM.fullmatch(piece.strip())
            if match is None or int(match[1]) in positions:
                raise ParameterError(
                    f"vector {quoted(text)}: expected PARTITION:OFFSET for each part once, separated by commas, such "
                    "as 0:120,1:98 (omdml history and omdml inspect show it)"
                )
            positions[int(match[1])] = int(match[2])
        return cls.at(positions)

    @classmethod
    def at(cls, positions: Mapping[int, int]) -> Vector:
        """The vector of parts at these positions, which are given by the number of the part."""
        return cls(tuple(Component(number, place) for number, place in sorted(positions.items())))

    @property
    def positions(self) -> dict[int, int]:
        """The offset after the last event taken, by partition."""
        return {part.number: part.next for part in self.parts}

    def reaches(self, other: Vector) -> bool:
        """Whether no part of the other vector is further, or missing here."""
        return not self.behind(other)

    def behind(self, other: Vector) -> list[int]:
        """The numbers of the parts that are further in the other vector, or missing here."""
        here = self.positions
        return [number for number, place in other.positions.items() if here.get(number, -1) < place]


def offset_in(topic_id: str, home: Partition, offset: int) -> int:
    """Where a part whose checkpoint is at this position goes on in a log: at 0 if it learned from an earlier one."""
    return offset if home.topic_id == topic_id else 0


class PartsRecord(msgspec.Struct, frozen=True):
    """What the checkpoint of a whole model keeps of its parts.

    Parameters
    ----------
    vector
        Which positions were merged last.
    forgotten
        By part: how many of the events that it held out no longer judge, because people changed their minds.
    pending
        The command that changes all parts just now; until it has ended nothing is merged.
    """

    vector: Vector = Vector()
    forgotten: dict[str, int] = {}
    pending: str = ""


def record_of(checkpoint: Checkpoint) -> PartsRecord | None:
    """The record in a checkpoint; None if its model was not learned in parts. Raises CorruptError."""
    record = checkpoint.progress.get(KEY)
    if record is None:
        return None
    try:
        return msgspec.convert(record, PartsRecord)
    except msgspec.ValidationError as error:
        raise CorruptError(f"checkpoint of model {checkpoint.model!r}: its record of parts: {error}") from error


def with_record(checkpoint: Checkpoint, record: PartsRecord) -> Checkpoint:
    """A copy of the checkpoint with this record of its parts."""
    progress = {**checkpoint.progress, KEY: msgspec.to_builtins(record)}
    return msgspec.structs.replace(checkpoint, progress=progress)


def was_in_parts(name: str) -> ConfigurationError:
    """The error for a model that is in parts in the store, and not in the configuration."""
    return ConfigurationError(
        f"model {name!r} was learned in parts, and models.{name}.parts is not set: set parts = true again. To go on "
        f"without parts, copy what it learned to another name (omdml models copy {name} NEW), have senders name that, "
        f"then omdml models delete {name}"
    )
