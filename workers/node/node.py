"""The retrieval node: it follows published snapshots, and answers which items are similar."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Self

import msgspec
from prometheus_client import CollectorRegistry

from omdml.errors import StoreError
from omdml.feedback import AnyFeedback
from omdml.snapshot import Snapshot
from omdml.streams.protocols.catalogue import Catalogue
from omdml.streams.protocols.log import Sink
from omdml.streams.protocols.store import SnapshotStore
from omdml.workers.configuration.process import one_thread
from omdml.workers.node.attributes.searched import SearchAttributes
from omdml.workers.node.attributes.table import Attributes
from omdml.workers.node.configured_models import ConfiguredModels
from omdml.workers.node.following.first_views import FirstViews
from omdml.workers.node.following.follow import Follower
from omdml.workers.node.following.hot_swap import LiveViews
from omdml.workers.node.following.live_pointers import Refresher
from omdml.workers.node.following.making_views import PATIENCE_S
from omdml.workers.node.following.past_views import PastViews
from omdml.workers.node.galleries.candidates import NO_CANDIDATES, CandidateIndex
from omdml.workers.node.galleries.gallery import Query
from omdml.workers.node.metrics import NodeMetrics
from omdml.workers.node.pattern_memory import PatternMemory
from omdml.workers.node.readiness import Readiness
from omdml.workers.node.searching.answers import DEFAULT_K, FIRST_PAGE, Answer, Answers, Paging, single
from omdml.workers.node.searching.options import PLAIN, Options, SearchError
from omdml.workers.node.view import View
from omdml.workers.node.writing.inbox import Inbox
from omdml.workers.node.writing.items import ItemWriter
from omdml.workers.telemetry.registry import MODELS, ModelLabels

BUDGET_BYTES = 1_000_000_000


class RetrievalNode:
    """Searches catalogues under the metrics that a store points at. Any number of threads may search.

    Parameters
    ----------
    store
        The store that snapshots are published to.
    catalogues
        Returns the catalogue of a model. It is called at every poll, so that it can take in changes or open a new
        generation. It returns the same object as long as the catalogue is of the same generation.
    models
        Names, loaded at the start and followed from then on, and patterns, whose models are loaded when asked for.
    sink
        The log that posted feedback is written to; None if this node accepts no feedback.
    attributes
        The attributes of a model's items, by which searches filter; None if it has none.
    expand
        How many nearest items a model's searches expand over, unless a request says otherwise; 0 turns expansion off.
    approximate
        Whether a model's searches are answered from an approximate index; otherwise they are exact.
    candidates
        The indexes in vector databases that propose candidates for some of the named models. The node starts and
        closes them.
    first
        The snapshot that a worker would publish of a model before its first event: it answers for models of which
        the store has nothing. None means that nothing answers for them.
    parent
        The name of a model's parent, empty if it has none: what that serves answers before the model's first event.
    check
        Raises FeedbackError if no worker would learn a posted event. None means that every event that can be decoded
        is taken.
    in_parts
        Models whose posted events are spread over all partitions.
    registry
        For the node's Prometheus metrics; its own by default.
    poll_interval_s
        Seconds between two looks at the store if no hint comes.
    patience_s
        Galleries that take more seconds to embed are embedded in the background.
    models_in_metrics
        Names and patterns that metrics tell apart; the others are ``other``.
    ready
        ``all`` if it is ready once every named model can answer, ``any`` if one is enough.
    budget_bytes
        How many bytes the galleries of patterns' models may take. Beyond that, those that were not searched for
        longest are dropped.
    """

    def __init__(
        self,
        store: SnapshotStore,
        catalogues: Callable[[str], Catalogue],
        models: Iterable[str],
        sink: Sink | None = None,
        registry: CollectorRegistry | None = None,
        poll_interval_s: float = 1.0,
        patience_s: float = PATIENCE_S,
        budget_bytes: int = BUDGET_BYTES,
        check: Callable[[AnyFeedback], None] | None = None,
        models_in_metrics: int = MODELS,
        ready: str = "all",
        first: Callable[[str], Snapshot] | None = None,
        attributes: Callable[[str], Attributes | None] = lambda model: None,
        expand: Callable[[str], int] = lambda model: 0,
        parent: Callable[[str], str] = lambda model: "",
        approximate: Callable[[str], bool] = lambda model: False,
        in_parts: Collection[str] = (),
        candidates: Mapping[str, CandidateIndex] = NO_CANDIDATES,
    ) -> None:
        self.models = ConfiguredModels(models)
        named, label = self.models.named, self.models.label
        self.metrics = NodeMetrics(registry or CollectorRegistry(), ModelLabels(self.models.all, models_in_metrics))
        self.inbox = Inbox(sink, check or accept_all, self.metrics, in_parts) if sink else None
        self.attributes = SearchAttributes(attributes)
        self.expand = expand
        self.store = store
        self.catalogues = catalogues
        self._parent = parent
        self._candidates, parents = candidates, self._parent_view
        self._first = FirstViews(first, catalogues, label, named, parents, candidates) if first else None
        self._live = LiveViews(catalogues, self.metrics, label, patience_s, approximate, candidates)
        self._refresher = Refresher(store, self._live, self.metrics, self._first)
        self.steps = self._live.steps
        self._pattern_memory = PatternMemory(self._refresher, named, budget_bytes)
        self.readiness = Readiness(
            self.models, ready, self._refresher, self._first, parent, candidates, self.metrics.freshness
        )
        self._past = PastViews(store, catalogues, patience_s, self._start_view, candidates)
        self.items = ItemWriter(self._live.take_in_all, self.metrics)
        self._follower = Follower(store, self._refresher, named, poll_interval_s)
        self.metrics.stale.set_function(lambda: self.stale_seconds)
        self.metrics.last_poll.set_function(lambda: self._follower.answered_at)
        self.metrics.not_live.set_function(lambda: len(self._refresher.refused))
        self.metrics.watch(self._live.views, label, candidates)

    def start(self) -> None:
        """Start to follow the store and to accept feedback. From now on BLAS uses one thread in this process."""
        one_thread()
        for index in self._candidates.values():
            index.start()
        self._follower.start()
        self.items.start()
        if self.inbox:
            self.inbox.start()

    def close(self) -> None:
        """Stop following. Feedback that was accepted is durable when this returns."""
        self.items.close()
        self._follower.close()
        self._live.close()
        for index in self._candidates.values():
            index.close()
        if self.inbox:
            self.inbox.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether the background threads make progress."""
        return self._follower.alive and self.items.alive and (self.inbox is None or self.inbox.alive)

    @property
    def stale_seconds(self) -> float:
        """Seconds since the most outdated model was up to date; 0 if all are. If the follower hangs, all are stale."""
        return max(self._refresher.stale_seconds(), self._follower.overdue_s)

    def loaded(self, model: str | None) -> View | None:
        """The view of a model if it can answer at once; ``model`` None is the only one there is."""
        return self._live.views.get(self.models.asked_for(model))

    def view(self, model: str | None = None) -> View:
        """The view that answers for a model now. A model of a pattern is loaded if necessary.

        Raises SearchError: ``unknown_model``, or ``not_ready`` if nothing was published that can be served.
        """
        name = self.models.asked_for(model)
        view = self._live.views.get(name)
        if view is None:
            view = self._load(name)
        if name not in self.models.named:
            self._pattern_memory.use(name)
        return view

    def view_of(self, model: str | None, version: int) -> View:
        """The view of a stored version, live or not, or of version 0.

        Raises SearchError: ``unknown_model``, ``not_kept``, ``unservable``. Raises StoreError if the store is out of
        reach.
        """
        return self._past.view(self.models.find(model), version)

    def search(
        self,
        model: str | None = None,
        *,
        ids: Sequence[str] | None = None,
        features: Mapping[str, Sequence[float]] | None = None,
        k: int = DEFAULT_K,
        task: str | None = None,
        by: str | None = None,
        rerank: int | None = None,
        page: Paging = FIRST_PAGE,
    ) -> Answer:
        """The ``k`` items closest to the mean of ``ids`` (which are left out of the answer), or to raw vectors.

        Under a metric of sets: the ``k`` sets that answer the elements ``ids`` best. ``by`` says how: ``"vector"`` (one
        vector for each set, the default), ``"aggregate"`` (one vector for the query, too) or ``"elements"`` (greedy
        matching with every set's elements, exact and slow). ``rerank`` orders that many of the best again by greedy
        matching.

        Raises SearchError.
        """
        view = self.view(model)
        return self.answer(view, view.query(ids, features, by, rerank), k, task, page)

    def answer(
        self,
        view: View,
        query: Query,
        k: int = DEFAULT_K,
        task: str | None = None,
        page: Paging = FIRST_PAGE,
    ) -> Answer:
        """Search in a view, and measure; raises SearchError."""
        return single(self.answers(view, [query], k, task, page))

    def answers(
        self,
        view: View,
        queries: Sequence[Query],
        k: int = DEFAULT_K,
        task: str | None = None,
        page: Paging = FIRST_PAGE,
        options: Options = PLAIN,
    ) -> Answers:
        """Search for several queries in one view, and measure; raises SearchError."""
        answers = view.search_each(queries, k, task, page, options)
        self.metrics.searched(self.models.label(answers.model), view, answers.version, answers.took_s)
        return answers

    def answers_together(
        self,
        view: View,
        searches: Sequence[Sequence[Query]],
        k: int = DEFAULT_K,
        task: str | None = None,
        page: Paging = FIRST_PAGE,
        options: Options = PLAIN,
    ) -> Iterator[Answers]:
        """The answers to several searches, each for some queries, by one scan of the items; raises SearchError."""
        answer = view.search_each([query for queries in searches for query in queries], k, task, page, options)
        answers = iter(answer.answers)
        for queries in searches:
            self.metrics.searched(self.models.label(answer.model), view, answer.version, answer.took_s)
            yield msgspec.structs.replace(answer, answers=list(islice(answers, len(queries))))

    def _parent_view(self, model: str) -> View | None:
        """The view that answers for a model's parent."""
        return self._live.views.get(self._parent(model))

    def _load(self, model: str) -> View:
        self.models.require(model)
        if self._follower.lost:
            why = "" if model in self.models.named else " (a pattern's model is loaded by its first search)"
            raise SearchError(f"model {model!r} is not loaded{why}, and its store is out of reach", "not_ready")
        try:
            view = self._refresher.refresh(model)
        except StoreError as error:
            raise SearchError(f"model {model!r} is not loaded, and its store fails: {error}", "not_ready") from error
        if view is not None:
            self._pattern_memory.make_room(model)
            return view
        refusal = self._refresher.refused.get(model)
        if refusal is None and self._first:
            return self._first.answering(model)
        if refusal:
            hint = refusal.reason
        elif model in self.models.named:
            hint = "is a worker running?"
        else:
            hint = "a pattern's model can be searched from its first event on; send one, or start a worker"
        raise SearchError(f"model {model!r} has no snapshot that can be served: {hint}", "not_ready")

    def _start_view(self, model: str) -> View | None:
        """The view of a model before its first event; None if it began with a parent, which has moved on since."""
        return self._first.answering(model) if self._first and not self._parent(model) else None


def accept_all(_: AnyFeedback) -> None:
    """Take every event that could be decoded."""
