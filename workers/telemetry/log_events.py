"""Counts of log lines: every line is counted by its event."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from structlog.typing import EventDict

OTHER = "other"
# What workers, nodes, routers and `omdml sync` may say, by level. A test compares this with the code.
EVENTS = {
    "info": (
        "attributes_read compiling_kernels drained_and_saved index_read kafka_back_in_reach learning_goes_on "
        "letters_settled model_claimed model_live model_replaced model_waits_no_longer models_claimed models_placed "
        "moved new_version node_started node_stopped partition_assigned partition_begins_again partition_revoked "
        "parts_claimed pinned rolled_back route_partitions_assigned route_partitions_given_up route_started "
        "route_stopped routed snapshots_live_again store_back_in_reach store_found sync_current sync_started "
        "sync_stopped sync_writing unpinned worker_started"
    ),
    "warning": (
        "attributes_unreadable begin_not_needed catalogue_not_refreshed change_adopted commit_failed connection_ended "
        "connection_refused dead_letters drift expelled fenced gap_accepted group_changed index_away index_not_pruned "
        "kafka_commit_refused kafka_leave_failed kafka_out_of_reach learning_waits letter_skipped letters_not_closed "
        "log_thinned member_name_taken merge_waits modality_filled_in model_deleted parent_not_used partition_lost "
        "partitions_not_read pictures_left_out requests_cancelled revoked_unsaved routing_again snapshot_damaged "
        "snapshot_taken_back snapshot_withheld spans_not_sent stopped_partly_unsaved stopped_unmerged stopped_unsaved "
        "store_fell_back store_is_empty store_out_of_reach sync_waiting topic_missing webhook_failed"
    ),
    "error": (
        "checkpoint_damaged checkpoint_damaged_previous_used checkpoint_of_another_model counts_not_written "
        "embedding_failed feedback_not_accepted items_not_changed job_failed kafka_client_failed "
        "kafka_fetching_stopped model_cannot_begin model_deleted model_goes_on model_not_published model_waits "
        "refresh_failed request_failed snapshot_refused state_file_unfit store_changed store_lost topic_compacted "
        "waiting_events_lost"
    ),
}
KNOWN = frozenset((level, event) for level, events in EVENTS.items() for event in events.split())

_lock = threading.Lock()
_counts: Counter[tuple[str, str]] = Counter()
# Called with every line, in any thread, so it must be quick.
listener: Callable[[Mapping[str, Any]], None] | None = None


def count(_: object, __: str, event: EventDict) -> EventDict:
    """Count a line, as a processor of structlog."""
    line = (event["level"], event["event"])
    with _lock:
        _counts[line if line in KNOWN else (event["level"], OTHER)] += 1
    if hears := listener:
        hears(event)
    return event


class LogEvents(Collector):
    """The counts, as Prometheus takes them."""

    def collect(self) -> Iterator[Any]:
        """One sample for each event that the log may have, at 0 until it comes."""
        family = CounterMetricFamily("omdml_log_events", "Lines of the log", labels=["level", "event"])
        with _lock:
            counts = {**dict.fromkeys(((level, OTHER) for level in EVENTS), 0), **dict.fromkeys(KNOWN, 0), **_counts}
        for labels, value in sorted(counts.items()):
            family.add_metric(labels, value)
        yield family
