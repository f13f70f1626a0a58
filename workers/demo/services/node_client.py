"""A node as the demo's people use it, with models that have tasks and models that have none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from omdml.client import Answer, Client, Live
from omdml.errors import ConfigurationError, ParameterError
from omdml.feedback import AnyFeedback

# Seconds to wait for an answer, and to try again. They are short, so that the demo soon says if it lost its node.
TIMEOUT_S, RETRY_S = 10.0, 2.0


class NodeClient:
    """Asks one node.

    Parameters
    ----------
    url
        ``http://host:port``, or ``https://host``.
    token
        The token of the node, if it has one.
    retry_s
        Seconds after which no further attempt begins.

    Raises
    ------
    ConfigurationError
        The URL is not valid.
    ClientError
        Every method raises it if the node is out of reach or refuses the request.
    """

    def __init__(self, url: str, token: str = "", retry_s: float = RETRY_S) -> None:
        try:
            self._client = Client(url, token, timeout_s=TIMEOUT_S, retry_s=retry_s)
        except ParameterError as error:
            raise ConfigurationError(str(error)) from error
        self._tasks: dict[str, Sequence[str]] = {}

    def search(self, model: str, query: str, k: int, task: str | None = None) -> Answer:
        """The ``k`` items closest to the item ``query``, in the sense of ``task`` if the model has tasks."""
        sense = task if task is not None and task in self._tasks_of(model) else None
        return self._client.search(query, k, task=sense, model=model)

    def _tasks_of(self, model: str) -> Sequence[str]:
        """The tasks of a model. The node is asked only once, because they do not change."""
        if model not in self._tasks:
            self._tasks[model] = self.models()[model].tasks
        return self._tasks[model]

    def send(self, events: Iterable[AnyFeedback]) -> None:
        """Post feedback; returns when the node has stored it on disk or in Kafka."""
        self._client.feedback(*events)

    def patterns(self) -> list[str]:
        """The patterns of names for which the node answers, beside the models that it names."""
        return self._client.patterns()

    def models(self, since: float = 0.0) -> dict[str, Live]:
        """The models of the node by name. Their freshness covers only versions that went live after ``since``."""
        return {live.model: live for live in self._client.models(since)}

    def close(self) -> None:
        self._client.close()
