"""``omdml status`` as lines of text, for one screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from textwrap import shorten, wrap

from omdml.workers.configuration.process import visible
from omdml.workers.configuration.wording import amount, span, when
from omdml.workers.doctor.checks.node import NodeStatus
from omdml.workers.doctor.status import (
    LettersStatus,
    LogStatus,
    ModelsStatus,
    PartitionStatus,
    Status,
    StoreStatus,
)

# Characters before each text.
LABEL = 11
# Lines of owners and their partitions.
OWNERS = 5
# At most this many names are handed to a line. The line is then cut to the screen's width.
NAMED = 20
MEGABYTE = 1e6
# Sections with several texts, a line each. The others have one, which may take two lines; what went wrong takes three.
ONE_LINE_EACH = ("workers", "models")
LETTERS_NOT_COUNTED = (
    "not counted: the log was too slow for this screen, so there may be any number. To count them: omdml letters list"
)


def screen(status: Status, width: int) -> Iterator[str]:
    """At most 24 lines of at most ``width`` characters, which are 80 or more."""
    yield shorten(f"omdml, {when(status.at)}", width)
    for label, texts in sections(status):
        line_limit = 3 if label in status.problems else 1 if label in ONE_LINE_EACH else 2
        lines = [line for text in texts for line in folded(text, width - LABEL, line_limit)]
        for number, line in enumerate(lines):
            yield f"{'' if number else label:{LABEL}}{visible(line)}"


def sections(status: Status) -> Iterator[tuple[str, Iterable[str]]]:
    """A label, and what stands beside it."""
    problems = status.problems
    log, models, letters, store = status.log, status.models, status.letters, status.store
    if log and not log.partitions and models and models.count:
        # A log in files without an identity: it never was, or its disk is not mounted. Then a worker may run and wait.
        yield "log", [f"{log.name}: it is not there, although the store holds models; `omdml doctor` says what to do"]
        yield "workers", ["not known: the log is not there (see log)"]
    else:
        yield "log", [log_text(log)] if log else [problems["log"]]
        yield "workers", owners(log) if log else ["not known: the log did not answer (see log)"]
    if models:
        yield "models", models_texts(models, status.at)
    else:
        yield "models", [problems.get("models", "not known: the store did not answer (see store)")]
    yield "node", [node_text(status.node) + fell_back_text(status.node)]
    if letters and not_counted(letters):
        yield "letters", [LETTERS_NOT_COUNTED]
    elif letters:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in letters.last_hour.items())
        recent = f"{sum(letters.last_hour.values()):,} in the last hour{f' ({reasons})' if reasons else ''}"
        beyond = "" if letters.whole else "; there are others, not looked at here: omdml letters list"
        yield "letters", [f"{recent}, {letters.open:,} open{beyond}"]
    else:
        yield "letters", [problems.get("letters", "not known: the log did not answer (see log)")]
    yield "store", [store_text(store)] if store else [problems["store"]]
    if status.catalogues is None:
        yield "catalogues", [problems["catalogues"]]
    else:
        lines = [
            f"{catalogue.name}: {amount(catalogue.items, 'item')}, generation {catalogue.generation}"
            for catalogue in status.catalogues
        ]
        yield "catalogues", ["; ".join(lines) or "none configured"]
    yield "doctor", [findings(status)]


def node_text(node: NodeStatus) -> str:
    """How the node of this machine is."""
    if node.state == "silent":
        return f"what listens at {node.address} {node.text}; omdml doctor waits longer"
    if node.state == "no node":
        return f"another program than a node answers at {node.address}"
    if not node.state:
        return f"none runs at {node.address} (nodes on other machines are not asked)"
    return f"{node.address} is {node.state}{f': {node.text}' if node.text else ''}"


def log_text(log: LogStatus) -> str:
    """The feedback log in one line: its name, its partitions, and how many events wait."""
    waits = f"{'more than ' * log.more}{amount(log.lag, 'event')} to be learned"
    if log.kind == "kafka":
        return f"topic {log.name}: {amount(len(log.partitions), 'partition')}, {waits}"
    return f"{log.name}: {waits}" if log.partitions else f"{log.name}: it begins with the first event"


def owners(log: LogStatus) -> list[str]:
    """Each worker with its partitions and their lag, then those that nobody reads."""
    owned: dict[str, list[PartitionStatus]] = {worker: [] for worker in log.workers}
    for partition in log.partitions:
        owned.setdefault(partition.owner, []).append(partition)
    unowned = owned.pop("", [])
    lines = [f"{owner}: {lags(partitions)}" for owner, partitions in owned.items()]
    if len(lines) > OWNERS:
        lines = [*lines[: OWNERS - 1], f"and {len(lines) - OWNERS + 1:,} more workers"]
    if unowned and log.workers:
        lines.append(f"nobody: {lags(unowned)}")
    elif unowned:
        lines.append(f"none is running; nobody reads {lags(unowned)}")
    return lines or ["none is running"]


def lags(partitions: Sequence[PartitionStatus]) -> str:
    """How far behind each of these is."""
    if not partitions:
        return "owns no partition"
    numbers = [
        f"{partition.number} (lag {partition.lag:,})" if partition.lag else str(partition.number)
        for partition in partitions
    ]
    return f"partition{'s' * (len(numbers) > 1)} {', '.join(numbers)}"


def models_texts(models: ModelsStatus, now: float) -> Iterator[str]:
    """The models, at most five texts."""
    newest = ""
    if models.newest is not None and models.newest_at is not None:
        newest = f", newest {models.newest} version {models.newest_version:,}, {span(now - models.newest_at)} ago"
    yield f"{models.count:,} in the store{newest}"
    if models.not_begun:
        yield f"not begun: {names(models.not_begun)}"
    by_state = {"waiting": models.waiting, "withheld by the guard": models.withheld, "pinned": models.pinned}
    scope = "" if models.looked == models.count else f" (of {models.looked:,} looked at)"
    for state, members in by_state.items():
        if members:
            yield f"{state}: {names(members)}{'' if state == 'pinned' else scope}"
    if empty := [state for state, members in by_state.items() if not members]:
        yield f"none is {' or '.join([', '.join(empty[:-1]), empty[-1]] if empty[1:] else empty)}{scope}"


def fell_back_text(node: NodeStatus) -> str:
    """A clause if the store has less than the node answers with; empty otherwise."""
    if not node.store_fell_back:
        return ""
    models = names([*node.store_fell_back])
    return f", but the store fell back behind it (see omdml doctor before you restart it): {models}"


def names(of: Sequence[str]) -> str:
    """How many there are, and who."""
    return f"{len(of):,} ({', '.join(of[:NAMED])}{', ...' * (len(of) > NAMED)})"


def store_text(store: StoreStatus) -> str:
    """The store in a line or two."""
    facts = [f"{store.address}: {store.kind}"]
    if store.used_bytes is not None:
        limit = f" of {store.limit_bytes / MEGABYTE:,.0f}" if store.limit_bytes else ""
        facts.append(f"{store.used_bytes / MEGABYTE:,.1f}{limit} MB of memory")
    if store.free_bytes is not None:
        facts.append(f"{store.free_bytes / MEGABYTE:,.0f} MB free on its disk")
    if store.durable is not None:
        facts.append("durable" if store.durable else "not durable")
    return ", ".join(facts)


def not_counted(letters: LettersStatus) -> bool:
    """Whether the log was too slow for any dead letter to be seen, so that nobody knows whether there are any."""
    return not letters.whole and not letters.last_hour and not letters.open


def findings(status: Status) -> str:
    """What the doctor has to say."""
    count = status.errors + status.warnings
    if not count and status.letters and not_counted(status.letters):
        return "finds nothing wrong with the rest, but dead letters could not be counted (see letters)"
    if not count:
        return "finds nothing wrong with this; `omdml doctor` checks more"
    errors = f" ({amount(status.errors, 'error')})" if status.errors else ""
    return f"has {amount(count, 'finding')} about this{errors}: run `omdml doctor`"


def folded(text: str, width: int, lines: int) -> list[str]:
    """The text in this many lines at most; what does not fit is cut."""
    return wrap(text, width, max_lines=lines, placeholder=" ...", break_on_hyphens=False) or [""]
