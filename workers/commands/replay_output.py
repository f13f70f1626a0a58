"""What ``omdml replay`` does with its options, and what it prints."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from omdml.errors import ConfigurationError, CorruptError
from omdml.snapshot import Checkpoint
from omdml.streams.disk import put
from omdml.streams.files.log import OFFSET_BITS
from omdml.streams.files.source import SEGMENT_BYTES
from omdml.streams.protocols.log import Partition, Record
from omdml.streams.protocols.store import Store
from omdml.streams.topic_extents import Extent
from omdml.workers.configuration import process
from omdml.workers.configuration.config import Configuration
from omdml.workers.configuration.specs import Spec, Specs
from omdml.workers.configuration.wording import amount
from omdml.workers.model.parts.vector import Vector
from omdml.workers.operate import fit, published_replay, replayed_parts
from omdml.workers.operate.left_out import NOTHING, LeftOut, check_beginning, check_log
from omdml.workers.operate.replay import ReplayedModel, first_learner, prequential_table, refusals, replayed_spec
from omdml.workers.operate.replay_page import page
from omdml.workers.wiring.dead_letters import open_letters
from omdml.workers.wiring.feedback_log import log_extents, placement_of, read_log
from omdml.workers.wiring.models import open_specs
from omdml.workers.wiring.stores import open_stores

# If a page shows curves, the first 2,000 records are learned in pieces of 20.
PIECE, FIRST_RECORDS = 20, 2000


class ReplayOptions(NamedTuple):
    """What the command line asks for."""

    learners: Sequence[str] = ()
    fitting: bool = False
    fit_on: int = fit.MOST
    save: str | None = None
    html: str | None = None
    publish: bool = False
    replace: bool = False
    accept_gap: bool = False
    left_out: LeftOut = NOTHING
    vector: str | None = None


def run(configuration: Configuration, name: str, options: ReplayOptions, console: Console) -> None:
    """Replay the log, print the result, and save and publish as the options say.

    Raises ConfigurationError if options contradict each other, and what reading, learning and storing raise.
    """
    process.one_thread()
    specs = chosen_specs(open_specs(configuration), name, options)
    if specs[0].parts or options.vector is not None:
        replay_parts(configuration, name, specs[0], options, console)
        return
    store = open_stores(configuration)
    _, placement = placement_of(configuration.log, store)
    secret = store.secret() if specs[0].guard.every else None
    if options.publish and not options.replace:
        published_replay.check_absent(store, name)
    extents = log_extents(configuration.log)
    checkpoint_before = check_what_is_replaced(store, name, extents, options)
    log = read_log(configuration.log, placement, options.accept_gap)
    log, events = with_progress_bar(console, extents, log), 0
    if options.fitting:
        records_to_fit, log, events = fit.cut(log, name, specs[0], options.fit_on)
        with console.status(f"fitting on the first {events:,} events, a minute or more ..."):
            models = [fit.fitted(name, spec, placement, records_to_fit, secret) for spec in specs]
    else:
        models = [
            ReplayedModel(name, first_learner(spec, name, store), spec, placement, secret, options.left_out)
            for spec in specs
        ]
    for model in models:
        model.note_beginnings(extents)
        model.metrics_along = [] if options.html else None
    learn(models, in_small_pieces(log) if options.html else log)
    report(console, models, events)
    if options.html:
        write_file("--html", Path(options.html), page(name, models, events).encode())
    if options.save:
        write_file("--save", Path(options.save), models[0].learner.to_bytes())
    if options.publish:
        console.print(
            process.visible(publish_result(configuration, models[0], store, options, checkpoint_before)),
            markup=False,
        )


def check_what_is_replaced(
    store: Store, name: str, extents: Iterable[Extent], options: ReplayOptions
) -> Checkpoint | None:
    """The checkpoint that must not change while the log is read; None: any may be replaced.

    Raises StoreError if what was learned cannot be learned again from the log, and CorruptError if events are to be
    left out of a model of which no checkpoint can be read. --accept-gap accepts both.
    """
    if not options.replace:
        return None
    leaving_out = options.left_out != NOTHING
    try:
        checkpoint = store.peek(name)
    except CorruptError:
        if leaving_out and not options.accept_gap:
            raise
        return None
    if checkpoint and not options.accept_gap:
        if leaving_out:
            check_beginning(checkpoint, name)
        check_log(checkpoint, name, extents)
    # If two commands leave out different users at the same time, the second one must not bring back those of the first.
    return checkpoint if leaving_out else None


def newest_event_time(store: Store, name: str, version: int | None) -> float | None:
    """The time of the newest event that a version has learned; None if the store does not keep the version."""
    with suppress(CorruptError):
        if version is not None and (loaded := store.load(name, version)):
            return loaded[1].event_time
    return None


def publish_result(
    configuration: Configuration,
    model: ReplayedModel,
    store: Store,
    options: ReplayOptions,
    expected_checkpoint: Checkpoint | None = None,
) -> str:
    """Publish what was learned if it is what the options ask for; returns a sentence for the operator.

    Raises StoreError if it is not.
    """
    options.left_out.check(model.learner.version, model.name)
    if not options.accept_gap:
        version_time = newest_event_time(store, model.name, options.left_out.version)
        options.left_out.check_no_later(model.event_time, version_time, model.name)
        options.left_out.check_found(model.passed_over, model.name)
        published_replay.check_whole(model, store)
    before = store.current(model.name)
    with closing(open_letters(configuration.log)) as letters:
        published_replay.publish(model, store, letters, process.platform(), options.replace, expected_checkpoint)
    # With --accept-gap, or if no checkpoint could be read, the model may have learned less than before.
    before_text = f" (before: version {before.version:,})" if before and before.version else ""
    summary = f"{model.name}: version {model.learner.version:,} is live{before_text}. "
    summary += f"If they are stopped, start the workers: they go on from offset {model.next}"
    if options.left_out == NOTHING:
        return summary
    digest = hashlib.sha256(model.learner.to_bytes()).hexdigest()
    left_out = f"{amount(model.passed_over, 'event')}, which the log still holds"
    result = f"{summary}. Left out: {left_out}; sha256 of what was learned: {digest}"
    return ". ".join(filter(None, (result, warning_of_children(configuration, model.name, store))))


def warning_of_children(configuration: Configuration, name: str, store: Store) -> str:
    """Say which models may still hold what was left out, because this model is their parent; empty if none does."""
    covered = ((child, configuration.match(child)) for child in store.models())
    children = [child for child, section in covered if section and section[1].parent == name]
    if not children:
        return ""
    return (
        f"{amount(len(children), 'model')} with it as parent (such as {children[0]}) may keep what it served before: "
        "deploy/RUNBOOK.md says under 'Erasing a person' how to let them begin again"
    )


def replay_parts(configuration: Configuration, name: str, spec: Spec, options: ReplayOptions, console: Console) -> None:
    """Replay a model in parts up to a vector, and compare what comes of it with what the store keeps.

    Raises ConfigurationError for options that such a model cannot have.
    """
    if not spec.parts:
        raise ConfigurationError(f"--vector is for models in parts, and models.{name}.parts is not set: leave it out")
    if options.left_out != NOTHING or options.publish:
        raise ConfigurationError(
            f"model {name!r} is learned in parts: it cannot begin from a replay, nor leave events out. omdml models "
            f"reset {name} has all parts forget everything; omdml topics rewind has all models learn the log again"
        )
    if options.fitting or options.html or options.learners or options.vector is None:
        raise ConfigurationError(
            f"model {name!r} is learned in parts: pass --vector (omdml inspect {name} shows that of the live version), "
            "--save and --accept-gap only. To try another learner, configure it under another name, without parts"
        )
    store, vector = open_stores(configuration), Vector.of_text(options.vector)
    _, placement = placement_of(configuration.log, store)
    secret = store.secret() if spec.guard.every else None
    log = with_progress_bar(
        console, log_extents(configuration.log), read_log(configuration.log, placement, options.accept_gap)
    )
    start = replayed_parts.start_of(name, spec, store)
    result = replayed_parts.replayed(name, spec, start, placement, secret, vector, log)
    for part in result.parts:
        part.finish()
    report(console, result.parts, 0)
    snapshot = replayed_parts.snapshot_of(name, spec, result.learner, vector)
    learned = f"{name}: version {snapshot.version:,} of the vector {vector}, sha256 {snapshot.digest}"
    console.print(process.visible(f"{learned}; {replayed_parts.compared(store, snapshot)}"), markup=False)
    if options.save:
        Path(options.save).write_bytes(result.learner.to_bytes())


def write_file(option: str, path: Path, data: bytes) -> None:
    """Write a file that an option names; raises ConfigurationError if it cannot be written."""
    try:
        if path.exists() and not path.is_file():
            # If a file took its name, a device or a pipe would be gone.
            path.write_bytes(data)
        else:
            # A link, such as /dev/stdout, stays one.
            put(Path(os.path.realpath(path)), data)
    except OSError as error:
        raise ConfigurationError(f"{option} {path}: {error.strerror}: name a file that can be written") from error


def chosen_specs(models: Specs, name: str, options: ReplayOptions) -> list[Spec]:
    """A spec for each learner asked for; raises ConfigurationError if options contradict each other."""
    configured = replayed_spec(models, name)
    specs = [replayed_spec(models, name, learner) for learner in dict.fromkeys(options.learners)] or [configured]
    if len(specs) > 1 and (options.save or options.publish):
        raise ConfigurationError("--save and --publish take one learner: name it with --learner")
    if options.publish and specs[0].learner is not configured.learner:
        raise ConfigurationError(f"model {name!r} is configured with another learner: set models.{name}.learner first")
    if options.replace and not options.publish:
        raise ConfigurationError("--replace goes with --publish")
    return specs


def learn(models: Sequence[ReplayedModel], log: Iterator[list[Record]]) -> None:
    """Take every model through the log."""
    for records in log:
        for model in models:
            model.learn(records)
    for model in models:
        model.finish()


def in_small_pieces(log: Iterator[list[Record]]) -> Iterator[list[Record]]:
    """The same records, at first only a few at a time, so that a curve shows what is learned from few."""
    read = 0
    for records in log:
        step = PIECE if read < FIRST_RECORDS else len(records)
        yield from (records[start : start + step] for start in range(0, len(records), step))
        read += len(records)


def report(console: Console, models: Sequence[ReplayedModel], fitted: int) -> None:
    """Print the table, and what was refused."""
    console.print(prequential_table(models, fitted))
    for line in filter(None, map(refusals, models)):
        console.print(process.visible(line), markup=False)


def with_progress_bar(
    console: Console, extents: Sequence[Extent], log: Iterator[list[Record]]
) -> Iterator[list[Record]]:
    """The same records. On a terminal, a bar shows how much of the log was read."""
    columns = (
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[events]:,} events read"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task, events = progress.add_task("read", total=1.0, events=0), 0
        reached: dict[Partition, int] = {}
        for records in log:
            events += len(records)
            reached |= {record.partition: record.offset + 1 for record in records}
            progress.update(task, completed=share_read(extents, reached), events=events)
            yield records


def share_read(extents: Sequence[Extent], reached: Mapping[Partition, int]) -> float:
    """The share of a log that was read, by its offsets, from 0 to 1."""
    sizes = {extent.partition: distance(extent.begin, extent.end) for extent in extents}
    read = sum(
        min(sizes[part.partition], distance(part.begin, reached.get(part.partition, part.begin))) for part in extents
    )
    return max(0.0, read / (sum(sizes.values()) or 1.0))


def distance(begin: int, end: int) -> float:
    """The distance of two offsets, in records or bytes.

    An offset of a log in files holds the number of a segment and a byte in it. Segments between the two count as full.
    """
    if end < 1 << OFFSET_BITS:
        return end - begin
    (first, first_byte), (last, last_byte) = (divmod(offset, 1 << OFFSET_BITS) for offset in (begin, end))
    return (last - first) * SEGMENT_BYTES + last_byte - first_byte
