"""``omdml doctor --audit``: reads everything, prints the sums, and says what does not add up."""

from __future__ import annotations

from rich.console import Console

from omdml.streams.files.log import FIRST, OFFSET_BITS
from omdml.streams.placement import Placement
from omdml.streams.protocols.log import Partition
from omdml.workers.commands.options import print_table, say
from omdml.workers.commands.replay_output import with_progress_bar
from omdml.workers.configuration.config import Configuration, FileLog
from omdml.workers.model.tally import Tally
from omdml.workers.operate import audit
from omdml.workers.operate.audit import Audit, LetterPositions, ModelSum, Report
from omdml.workers.operate.replay import read_whole
from omdml.workers.wiring.dead_letters import open_letters_to_read
from omdml.workers.wiring.feedback_log import log_extents, open_ungrouped
from omdml.workers.wiring.stores import open_stores

# Models in the table. If there are more, it shows only those that do not add up.
SHOWN = 50
COLUMNS = ("model", "events at home", "learned", "held out", "repeated", "letters", "not yet taken", "without a fate")


def run(configuration: Configuration) -> bool:
    """Audit an installation; returns whether everything adds up. Raises SourceError, StoreError."""
    console, store = Console(), open_stores(configuration)
    log = open_ungrouped(configuration.log)
    partitions = [Partition(log.topic_id, number) for number in range(log.partitions)]
    placement = store.placement(log.topic_id) or Placement.first(log.partitioner, log.partitions)
    marks = store.marks(partitions)
    models = list(audit.sums(store))
    audited = Audit(marks, models, read_letters(configuration), placement)
    begins = {partition: log.begin(partition) for partition in partitions}
    for records in with_progress_bar(console, log_extents(configuration.log), read_whole(log)):
        audited.read(records)
    report = audit.report(audited, begins)
    show(audited, report)
    return not report.wrong


def read_letters(configuration: Configuration) -> LetterPositions:
    """Read all dead letters of the log, from their topic or folder."""
    letters, source = LetterPositions(), open_letters_to_read(configuration.log)
    if source is None:
        return letters
    first = FIRST << OFFSET_BITS if isinstance(configuration.log, FileLog) else 0
    if any(source.begin(Partition(source.topic_id, number)) > first for number in range(source.partitions)):
        letters.complete = False
    for records in read_whole(source):
        letters.read(records)
    return letters


def show(audited: Audit, report: Report) -> None:
    """Print the table, what does not add up, and what cannot be known."""
    models = sorted(audited.models.values(), key=lambda model: model.name)
    shows_only_wrong = len(models) > SHOWN
    rows = [(model.name, *numbers(model)) for model in models if not shows_only_wrong or model.name in report.wrong]
    if shows_only_wrong:
        rows.append((f"all {len(models):,} models", *map(sum, zip(*map(numbers, models), strict=True))))
    strays = audited.strays.values()
    letters, missing = sum(stray.letters for stray in strays), sum(stray.missing for stray in strays)
    behind = sum(stray.behind for stray in strays)
    rows.append(("of no model there", letters + behind + missing, 0, 0, 0, letters, behind, missing))
    print_table(COLUMNS, [(name, *(f"{count:,}" for count in counts)) for name, *counts in rows])
    for name, text in report.wrong.items():
        say(f"{name}: {text}" if name else text)
    for text in report.limits:
        say(f"not known: {text}")
    if not report.wrong:
        say(f"everything that is known adds up: {unknown(report)}" if report.limits else "everything adds up")


def unknown(report: Report) -> str:
    """A clause that says how many things are not known."""
    count = len(report.limits)
    return "one thing is not known, see above" if count == 1 else f"{count} things are not known, see above"


def numbers(model: ModelSum) -> tuple[int, ...]:
    """The numbers in a model's row of the table."""
    tally = model.tally or Tally()
    events = model.events + model.letters + model.behind
    return events, tally.learned, tally.held, tally.repeated, model.letters, model.behind, model.missing
