"""Whether a store that is not there was lost or never existed: the log and its dead letters show if workers ran."""

from __future__ import annotations

from contextlib import suppress

from omdml.errors import SourceError
from omdml.streams.addresses import masked
from omdml.streams.files.group_state import GroupState
from omdml.streams.files.reader import has_begun, open_log
from omdml.workers.configuration.config import FileLog
from omdml.workers.configuration.wording import amount
from omdml.workers.doctor.facts import Facts
from omdml.workers.doctor.findings import Remark, error


def lost_store(facts: Facts) -> list[Remark]:
    """A remark on a store that is not there although workers have read the log; none if nothing shows that they did."""
    log, url = facts.configuration.log, masked(facts.configuration.store.url)
    if not facts.readable or (isinstance(log, FileLog) and not has_begun(log.path)):
        return []
    if _was_read(facts):
        evidence = f"group {log.group!r} has read this log before"
        remedy = "take another log.group" if isinstance(log, FileLog) else "omdml topics rewind"
        consequence = f"no worker goes on. To learn everything again: {remedy}"
    elif letters := _letters(facts):
        evidence = f"workers have read this log before: they left {amount(letters, 'dead letter')}"
        consequence = "a worker that is started learns the whole log again, into a new store"
    else:
        return []
    return [
        error(
            f"{url} is not there, but {evidence}. The folder was moved or deleted, its disk is not mounted, or "
            f"store.url names another one. Bring it back, or correct store.url. Until then {consequence}"
        )
    ]


def _was_read(facts: Facts) -> bool:
    """Whether the group has recorded how far it read."""
    log = facts.configuration.log
    if isinstance(log, FileLog):
        return GroupState(open_log(log.path), log.group).read() is not None
    return any(extent.committed is not None for extent in facts.reach())


def _letters(facts: Facts) -> int:
    """How many dead letters are about events of this log."""
    topic_id = facts.reach()[0].partition.topic_id
    # The check of letters says why they cannot be read.
    with suppress(SourceError):
        book, _ = facts.letters
        return sum(letter.partition.topic_id == topic_id for letter in book.letters.values())
    return 0
