"""The parts of pages written by hand that follow from the learners and the kinds of feedback."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from omdml import DEFAULT_LEARNER
from omdml.comparisons import conversion
from omdml.errors import FeedbackError
from omdml.feedback import KINDS, AnyFeedback, decode
from omdml.learners import LEARNERS, Learner

DOCS = Path(__file__).parents[1]
EVENT = re.compile(r'^\{"type":.*\}$', re.MULTILINE)
ROW = re.compile(r"^\| `(\w+)`(.*?) \|(.*?)\|", re.MULTILINE)


def python_page() -> str:
    """The page of Python, with a section for the class of each learner."""
    page = (DOCS / "reference" / "python.md").read_text()
    begin, end = ".. autoclass:: omdml.learners.Outcome\n   :members: mistakes\n\n", ".. autofunction:: omdml.merge\n"
    before, after = page.split(begin)
    classes = "".join(
        f".. autoclass:: omdml.{kind.__name__}\n   :members:\n   :inherited-members: Learner, Base\n\n"
        for kind in sorted(LEARNERS.values(), key=lambda kind: kind.name != DEFAULT_LEARNER)
    )
    return before + begin + classes + end + after.split(end)[1]


def learners_page() -> str:
    """The page of learners, whose table says in its second column which events each learner takes.

    Raises LookupError if a learner has no row, or a kind of event no example.
    """
    events = examples()
    text, rows = (DOCS / "learners.md").read_text(), set()

    def filled(row: re.Match[str]) -> str:
        name, remark, _ = row.groups()
        if name not in LEARNERS:
            return row[0]
        rows.add(name)
        return f"| `{name}`{remark} | {kinds_taken(LEARNERS[name], events)} |"

    page = ROW.sub(filled, text)
    if missing := LEARNERS.keys() - rows:
        form = "| `NAME` | | WHAT IT MEASURES | SOURCE | BEFORE -> AFTER |"
        raise LookupError(f"docs/learners.md has no row for {', '.join(sorted(missing))}: write {form}")
    return page


def examples() -> list[AnyFeedback]:
    """An event of each kind, from the page of feedback; raises LookupError if a kind has none."""
    shown = [decode(line.encode()) for line in EVENT.findall((DOCS / "feedback.md").read_text())]
    by_kind: dict[type, AnyFeedback] = {type(event): event for event in shown}
    if missing := [name for kind, name in KINDS.items() if kind not in by_kind]:
        form = f'{{"type":"{missing[0]}","model":...}}'
        raise LookupError(
            f"docs/feedback.md shows no event of kind {', '.join(missing)}: write one on a line of its own: {form}"
        )
    return [by_kind[kind] for kind in KINDS]


def kinds_taken(learner: type[Learner], events: list[AnyFeedback]) -> str:
    """The kinds of these events that a learner takes, in words."""
    kinds = [f"`{KINDS[type(event)]}`" for event in events if is_taken(event, learner)]
    if "tasks" in inspect.signature(learner).parameters:
        kinds.append("each of one task")
    return ", ".join(kinds)


def is_taken(event: AnyFeedback, learner: type[Learner]) -> bool:
    """Whether a learner takes events of this kind. It may still refuse this one, for its task for example."""
    try:
        conversion(learner.accepts)(event)
    except FeedbackError as error:
        return error.reason != "not_accepted"
    return True
