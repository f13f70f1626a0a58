"""Marks, placements and the secret: what a store in Redis keeps beside its models."""

from __future__ import annotations

from collections.abc import Iterable

from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.streams.protocols.store import Marks
from omdml.streams.stores.checkpoints import new_secret, read_secret
from omdml.streams.stores.redis.client import reaching, run_of
from omdml.streams.stores.redis.database import RedisDatabase
from omdml.streams.stores.redis.keys import understanding


class RedisMarks(RedisDatabase):
    """Watermarks, placements and the secret in Redis."""

    def marks(self, partitions: Iterable[Partition]) -> Marks:
        """The offset below which everything is in checkpoints. The run is the server's, and its replication's.

        Replacements are counted first: an owner that reads a mark from before one must not know of the replacement.
        """
        partitions = list(partitions)
        with reaching(self._where), self._client.pipeline(transaction=False) as pipeline:
            pipeline.get(self._keys.replacements)
            for partition in partitions:
                pipeline.get(self._keys.mark(partition))
            gets = list(pipeline.command_stack)
            *answers, server, replication = pipeline.info("server").info("replication").execute(raise_on_error=False)
            pipeline.raise_first_error(gets, answers)
            run = run_of(server, replication)
        replacements, *marks = answers
        with understanding(answers):
            offsets = {place: int(mark) for place, mark in zip(partitions, marks, strict=True) if mark is not None}
            return Marks(offsets, run, int(replacements or 0))

    def move_mark(self, partition: Partition, before: int | None, offset: int, replacements: int | None = None) -> bool:
        """Set a mark, if it is as expected."""
        keys, values = [self._keys.mark(partition), self._keys.replacements], ["" if before is None else before, offset]
        known_count = [] if replacements is None else [replacements]
        with reaching(self._where):
            return bool(self._compare_and_set(keys, [*values, *known_count]))

    def placement(self, topic_id: str) -> Placement | None:
        """The placement of a log's models; None before the first worker recorded it."""
        with reaching(self._where):
            data = self._client.get(self._keys.placement(topic_id))
        return Placement.decode(data, self._where) if data else None

    def place(self, topic_id: str, before: Placement | None, after: Placement) -> bool:
        """Record a placement, if it is as expected."""
        expected = before.encode() if before else b""
        with reaching(self._where):
            return bool(self._compare_and_set([self._keys.placement(topic_id)], [expected, after.encode()]))

    def group(self, topic_id: str) -> str:
        """The group that reads a log."""
        with reaching(self._where):
            group = self._client.get(self._keys.group(topic_id))
        with understanding(group):
            return (group or b"").decode()

    def note_group(self, topic_id: str, group: str) -> None:
        """Record the group that reads a log."""
        with reaching(self._where):
            self._client.set(self._keys.group(topic_id), group)

    def secret(self) -> bytes:
        """The secret that lies in the database."""
        with reaching(self._where), self._client.pipeline(transaction=False) as pipeline:
            pipeline.set(self._keys.secret, new_secret(), nx=True)
            pipeline.get(self._keys.secret)
            _, secret = pipeline.execute()
        return read_secret(secret or b"", f"{self._where}, key {self._keys.secret}")

    def kept_secret(self) -> bytes | None:
        """The secret, if it was made."""
        with reaching(self._where):
            secret = self._client.get(self._keys.secret)
        return None if secret is None else read_secret(secret, f"{self._where}, key {self._keys.secret}")
