"""Nodes that take candidates from an index, and a sync that brings versions to it."""

from __future__ import annotations

from omdml.workers.node.galleries.candidates import CandidateIndex
from tests.support.catalogues.indexes import Sync

GALLERY = "omdml.workers.node.galleries.two_stage"


def step(shop, database):
    """Bring the live version to the index, as ``omdml sync`` does once."""
    with Sync(shop, database.open(), moved=0.0) as sync:
        return sync.step()


def candidates_of(shop, database):
    return {"shop": CandidateIndex("shop", lambda: shop.catalogue, database.open())}


def serving(shop, database, **options):
    """A node that takes candidates from the index."""
    return shop.node(candidates=candidates_of(shop, database), **options)
