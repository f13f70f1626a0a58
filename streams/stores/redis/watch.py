"""Hints that pointers in Redis moved, over a connection of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import redis
import structlog

from omdml.streams.addresses import masked
from omdml.streams.stores.redis.client import connect

# Seconds for an attempt to subscribe. A wait may take this much longer than its timeout.
PATIENCE_S = 1.0
# Seconds between two attempts.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0
# A server that leaves a ping unanswered for so long is gone, whatever TCP says.
ANSWER_S = 5.0

log = structlog.get_logger(__name__)


class RedisWatch:
    """A subscription that comes back by itself after an outage; one thread uses it.

    What is published during an outage is lost, so every model counts as moved when it is over.

    Parameters
    ----------
    url
        The server's address.
    channels
        The channel of each model.
    """

    def __init__(self, url: str, channels: Mapping[str, str]) -> None:
        self._client, self._where = connect(url, PATIENCE_S, retries=0), masked(url)
        self._models = {channel.encode(): model for model, channel in channels.items()}
        self._pubsub: Any = None
        self._pause_s = FIRST_PAUSE_S
        self._retry_at = 0.0
        self._unanswered_since: float | None = None
        self._logged = False
        self._subscribe()

    def wait(self, timeout_s: float) -> set[str]:
        """Models that may have moved; empty after the timeout, also during an outage."""
        deadline = time.monotonic() + timeout_s
        while True:
            if self._pubsub is None:
                time.sleep(max(0.0, min(self._retry_at, deadline) - time.monotonic()))
                if time.monotonic() >= self._retry_at and self._subscribe():
                    return set(self._models.values())
            elif moved := self._listen(deadline):
                return moved
            if time.monotonic() >= deadline:
                return set()

    def close(self) -> None:
        """Close the subscription and its connection."""
        if self._pubsub is not None:
            self._pubsub.close()
        self._client.close()

    def _subscribe(self) -> bool:
        """Subscribe; False if the server does not confirm it in time."""
        if not self._models:
            return False
        pubsub = self._client.pubsub()
        try:
            pubsub.subscribe(*self._models)
            for _ in self._models:
                if not pubsub.get_message(timeout=PATIENCE_S):
                    raise redis.TimeoutError("no confirmation of a subscription")
        except redis.RedisError as error:
            self._note_lost(pubsub, error)
            return False
        if self._logged:
            log.info("store_back_in_reach", store=self._where)
        self._pubsub, self._pause_s, self._logged, self._unanswered_since = pubsub, FIRST_PAUSE_S, False, None
        return True

    def _listen(self, deadline: float) -> set[str]:
        """The models of all hints that are there, waiting for the first."""
        moved: set[str] = set()
        try:
            timeout_s = max(0.0, deadline - time.monotonic())
            while message := self._pubsub.get_message(timeout=0.0 if moved else timeout_s):
                # If a confirmation is among them, the client reconnected by itself, and hints may be lost.
                moved.add(self._models[message["channel"]])
            self._check_answers()
        except redis.RedisError as error:
            self._note_lost(self._pubsub, error)
        return moved

    def _check_answers(self) -> None:
        """Raise TimeoutError if a ping has no answer. The client pings when idle, and does not look for the answer."""
        now = time.monotonic()
        if not self._pubsub.health_check_response_counter:
            self._unanswered_since = None
        elif self._unanswered_since is None:
            self._unanswered_since = now
        elif now - self._unanswered_since > ANSWER_S:
            raise redis.TimeoutError(f"no answer to a ping for {ANSWER_S:.0f} s")

    def _note_lost(self, pubsub: Any, error: redis.RedisError) -> None:
        if not self._logged:
            action = "answers with the versions that it has; trying again"
            log.warning("store_out_of_reach", store=self._where, reason=str(error), action=action)
        pubsub.close()
        self._pubsub, self._logged = None, True
        self._retry_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
