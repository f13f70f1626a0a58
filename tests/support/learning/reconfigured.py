"""A world whose worker learned and left, and the same under another configuration."""

from __future__ import annotations

from tests.support.worlds import World, events, run_until_idle

EVENTS = list(events(100))


def learned(folder, count=45, store=None, **options):
    """A world whose worker learned this many events, and ended."""
    world = World(folder, **options)
    world.store = store or world.store
    world.send(*EVENTS[:count])
    worker = world.worker()
    run_until_idle(worker)
    worker.services.source.close()
    return world


def changed(world, folder, **options):
    """The same log and store under another configuration."""
    again = World(folder, **options)
    again.log, again.store, again.graves = world.log, world.store, world.graves
    return again
