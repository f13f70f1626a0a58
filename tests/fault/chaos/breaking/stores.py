"""Stores that forget writes which they acknowledged: a replica that takes over, files that lack the newest writes.

The workers notice it by the server's run, and learn again from the log what was forgotten.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import redis

from tests.fault.chaos.service import MODELS, Service

NOTICED = "event=store_changed"


def replica_takes_over(service: Service, chance: Random) -> None:
    """The replica gets nothing for a while; then the primary is killed, and the replica is the store."""
    pair = service.servers.replicated
    _is_known(service)
    pair.stop_replicating()
    _all_saved(service)
    _goes_away_and_comes_back(service, pair.take_over, at_least=1)
    pair.rejoin()


def killed(service: Service, chance: Random) -> None:
    """The server is killed and started again, with what its files hold."""
    server = service.store_server
    _is_known(service)

    def kill_and_start() -> None:
        server.kill()
        server.start()

    _goes_away_and_comes_back(service, kill_and_start, at_least=0)


def machine_killed(service: Service, chance: Random) -> None:
    """The machine loses power: of the append-only file, what was written since a save of every model is gone."""
    server = service.store_server
    _is_known(service)
    size = append_only_file(server.data).stat().st_size
    _all_saved(service)

    def lose_power() -> None:
        server.kill()
        os.truncate(append_only_file(server.data), size)
        server.start()

    _goes_away_and_comes_back(service, lose_power, at_least=1)


def append_only_file(data: Path) -> Path:
    """The file that a server appends its writes to now."""
    return max((data / "appendonlydir").glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[-3]))


def positions(service: Service) -> dict[str, int]:
    """The offset after the last event in each model's checkpoint."""
    return {model: position.next for model, position in service.store.positions(MODELS).items()}


def all_saved_since(service: Service, before: dict[str, int]) -> bool:
    """Whether every model has another checkpoint than it had then."""
    now = positions(service)
    return all(now.get(model, 0) > before.get(model, 0) for model in MODELS)


def _is_known(service: Service) -> None:
    """Return when the store's files have every model and every partition's mark.

    If a store forgets all that it ever knew of a model, workers stop, and an operator decides.
    """
    if service.injected:
        return
    # A mark follows the models of a save: it is there by the next one.
    for _ in range(2):
        _all_saved(service)
    with redis.Redis.from_url(service.store_server.url) as client:
        if client.config_get("save")["save"]:
            # The first one that ends may have begun before.
            for _ in range(2):
                before = client.lastsave()
                service.wait(lambda before=before: client.lastsave() > before, "the store to save")


def _all_saved(service: Service) -> None:
    before = positions(service)
    service.wait(lambda: all_saved_since(service, before), "every model to be saved")


def _goes_away_and_comes_back(service: Service, happen: Callable[[], None], at_least: int) -> None:
    """Run a fault, and note how many events the store's checkpoints lack afterwards."""
    noticed, before = service.said(NOTICED), positions(service)
    happen()
    after = positions(service)
    forgotten = sum(max(0, offset - after.get(model, 0)) for model, offset in before.items())
    service.forgotten.append(forgotten)
    assert forgotten >= at_least, f"the store has forgotten nothing: {before} -> {after}"
    service.wait(lambda: service.said(NOTICED) > noticed, "a worker to notice that the store changed")
