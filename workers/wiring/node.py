"""Builds a node with its store, catalogues, feedback log and tokens, and serves it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from omdml.workers.configuration.access import check_reach
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.process import address, forget_start
from omdml.workers.wiring.feedback_log import open_sink
from omdml.workers.wiring.models import open_specs
from omdml.workers.wiring.stores import open_stores, tell_if_empty

# What searches brings numba and scipy, a second of processor, which most commands do not need.
if TYPE_CHECKING:
    from omdml.streams.protocols.catalogue import Catalogue
    from omdml.workers.node.attributes.table import Attributes
    from omdml.workers.node.galleries.candidates import CandidateIndex
    from omdml.workers.node.pictures import Pictures

MEGABYTE = 1_000_000


def serve_node(configuration: Configuration, office: Callable[..., bytes] | None = None) -> None:
    """Run a node with its HTTP server until a signal; ``office`` does what operators ask for beside searches."""
    from omdml.retrieval.cells import faiss
    from omdml.workers.configuration.warm_up import warm_up_searches
    from omdml.workers.node.catalogues import CurrentModels
    from omdml.workers.node.experiments.experiments import Experiments
    from omdml.workers.node.http.server import bind, serve
    from omdml.workers.node.node import RetrievalNode
    from omdml.workers.telemetry.registry import new_registry
    from omdml.workers.telemetry.store_times import timed

    host, port = address(configuration.node.bind, "node.bind")
    check_reach(host, configuration.node.access)
    # A port that is taken is reported now, not after the catalogue and the kernels were loaded. The address is let go
    # again: until the node can answer, clients are refused at once instead of waiting.
    bind(host, port).close()
    current = CurrentModels(open_specs(configuration))
    registry = new_registry()
    store = open_stores(configuration)
    tell_if_empty(store)
    if any(model.index == "approximate" for model in configuration.models.values()):
        # If faiss is not installed, the start fails here, and not the first search.
        faiss()
    warm_up_searches()
    node = RetrievalNode(
        timed(store, registry),
        current.catalogue,
        configuration.models,
        open_sink(configuration.log),
        registry,
        budget_bytes=int(configuration.node.memory_mb * MEGABYTE),
        check=current.check,
        models_in_metrics=configuration.metrics.models,
        ready=configuration.node.ready,
        first=current.first,
        parent=current.parent,
        attributes=attributes_of(configuration),
        expand=configuration.expand,
        approximate=configuration.approximate,
        in_parts=configuration.in_parts,
        candidates=candidates_of(configuration, current.catalogue),
    )
    access, hosts = configuration.node.access, configuration.node.hosts
    experiments = Experiments(configuration.experiments)
    forget_start()
    serve(node, host, port, access, hosts, pictures_of(configuration), office, experiments)


def candidates_of(configuration: Configuration, catalogue: Callable[[str], Catalogue]) -> dict[str, CandidateIndex]:
    """The indexes that models' candidates come from, by model; raises ConfigurationError."""
    from omdml.workers.node.galleries.candidates import CandidateIndex
    from omdml.workers.wiring.indexes import index_of_candidates

    return {
        name: CandidateIndex(name, partial(catalogue, name), index_of_candidates(name, model.candidates))
        for name, model in configuration.models.items()
        if model.candidates
    }


def attributes_of(configuration: Configuration) -> Callable[[str], Attributes | None]:
    """Answers what is known of a model's items; raises CatalogueError if a file cannot be read."""
    from omdml.workers.node.attributes.followed import FollowedAttributes

    files = {
        name: FollowedAttributes(config.attributes)
        for name, config in configuration.catalogues.items()
        if config.attributes
    }

    def of(model: str) -> Attributes | None:
        matched = configuration.match(model)
        followed = files.get(matched[1].catalogue) if matched else None
        return followed() if followed else None

    return of


def pictures_of(configuration: Configuration) -> Callable[[str], Pictures | None]:
    """Answers where the pictures of a model's items are; raises ConfigurationError if there is no such folder."""
    from omdml.workers.node.pictures import Pictures

    folders = {
        name: Pictures(config.pictures, f"catalogues.{name}.pictures")
        for name, config in configuration.catalogues.items()
        if config.pictures
    }

    def of(model: str) -> Pictures | None:
        matched = configuration.match(model)
        return folders.get(matched[1].catalogue) if matched else None

    return of
