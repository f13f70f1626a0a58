"""A database of a Redis or Valkey server that a store lies in: its client, keys and scripts, and how it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from redis import exceptions

from omdml.errors import StoreError
from omdml.formats import REDIS_STORE
from omdml.streams.addresses import masked, without_prefix
from omdml.streams.stores.redis import scripts
from omdml.streams.stores.redis.client import about_a_key, connect, reaching
from omdml.streams.stores.redis.keys import StoreKeys, understanding

PREFIX = "omdml"


class RedisDatabase:
    """What every part of a store works with; the address is :class:`~omdml.streams.stores.redis.store.RedisStore`'s."""

    def __init__(self, url: str) -> None:
        self._url, prefix = without_prefix(url)
        self._keys, self._where = StoreKeys(prefix or PREFIX), masked(url)
        self._client: Any = connect(self._url)
        self._scripts: list[Any] = []
        self._claim, self._condemn = self._script(scripts.CLAIM), self._script(scripts.CONDEMN)
        self._save, self._publish = self._script(scripts.SAVE), self._script(scripts.PUBLISH)
        self._move, self._drop = self._script(scripts.MOVE), self._script(scripts.DROP)
        self._note, self._delete = self._script(scripts.NOTE), self._script(scripts.DELETE)
        self._drop_earlier = self._script(scripts.DROP_EARLIER)
        self._compare_and_set = self._script(scripts.COMPARE_AND_SET)

    def _script(self, text: str) -> Any:
        self._scripts.append(self._client.register_script(text))
        return self._scripts[-1]

    def __str__(self) -> str:
        return self._where

    @property
    def store_id(self) -> str:
        """The id that lies in the database."""
        with reaching(self._where):
            return str((self._client.get(self._keys.store) or b"").decode(errors="replace"))

    @contextmanager
    def _asking(self, models: Sequence[str | None]) -> Iterator[tuple[Any, list[Any]]]:
        """A pipeline to fill, and a list that holds the server's answers afterwards.

        The error about one command names the model, among ``models``, that the command is about.
        """
        answers: list[Any] = []
        with reaching(self._where), self._client.pipeline(transaction=False) as pipeline:
            yield pipeline, answers
            commands = list(pipeline.command_stack)
            answers += pipeline.execute(raise_on_error=False)
            if any(isinstance(answer, exceptions.NoScriptError) for answer in answers):
                # The server was started again and forgot the scripts. To run all commands twice is safe (scripts.py).
                for script in self._scripts:
                    self._client.script_load(script.script)
                pipeline.command_stack = commands
                answers[:] = pipeline.execute(raise_on_error=False)
        for model, (words, _), answer in zip(models, commands, answers, strict=True):
            if isinstance(answer, redis.RedisError):
                names_command = words[0] != "EVALSHA" and about_a_key(answer)
                message = f"{words[0]} {words[1]}: {answer}" if names_command else str(answer)
                with reaching(self._where, model):
                    raise type(answer)(message)

    def _check_format(self, number: bytes | None) -> None:
        """Refuse what another release wrote. What has no number was written before there were any, in format 1."""
        with understanding(number):
            stored = 1 if number is None else int(number)
        REDIS_STORE.check(stored, f"store {self._where}", StoreError)


def run(pipeline: Any, script: Any, keys: Sequence[str], arguments: Sequence[Any]) -> None:
    """Add a script to a pipeline by its digest: the client's own way asks for the right to SCRIPT EXISTS as well."""
    pipeline.evalsha(script.sha, len(keys), *keys, *arguments)
