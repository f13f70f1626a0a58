"""Dead letters that are open: how many of each reason, how new, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from omdml.streams.letters import Book, Letter
from omdml.workers.configuration.wording import amount, day, when
from omdml.workers.doctor.findings import Remark, error, warning
from omdml.workers.wiring.dead_letters import without_topic

# Seconds. Open letters that are older are still reported, but not as a warning.
FRESH_S = 7 * 86_400.0
# Characters of an error.
SHOWN = 400


def missing(topic: str, begun: bool) -> str | list[Remark]:
    """What it means that the letters have no topic; ``begun`` if a worker has read events, or the topic is named."""
    if not begun:
        return f"no dead letters; the first worker creates their topic, {topic}"
    return [error(without_topic(topic))]


def unsent(book: Book, whole: bool, now: float, hasty: bool = False) -> str | list[Remark]:
    """What there is to say about the dead letters, and what to do about those that are open.

    Parameters
    ----------
    whole
        Whether the book holds every letter, or only the newest ones.
    now
        Seconds since the epoch.
    hasty
        Whether ``omdml status`` asks. It reads for a shorter time than the doctor, and its screen says by itself what
        could not be counted.
    """
    letters = book.open
    scope = "" if whole else f" (among the newest {amount(len(book.letters), 'letter')}; older ones were not looked at)"
    if not whole and not book.letters:
        text = (
            "not counted: the log was too slow for this check, so there may be any number. "
            "To count them: omdml letters list"
        )
        return text if hasty else [warning(text)]
    if not letters:
        return f"no dead letter is open{scope}" if book.letters else "no dead letters"
    letters.sort(key=lambda letter: letter.at or now)
    fresh = [letter for letter in letters if now - (letter.at or now) < FRESH_S]
    if not fresh:
        newest_day = day(letters[-1].at)
        verb = "was" if len(letters) == 1 else "were"
        return f"{counted(letters)} {verb} neither sent again nor dismissed{scope}; the newest is of {newest_day}"
    summary = f"{counted(letters)} could not be learned, and nobody sent them again or dismissed them{scope}"
    return [warning(f"{summary}. {newest(fresh[-1])}")]


def counted(letters: Sequence[Letter]) -> str:
    """How many events there are of each reason."""
    reasons = Counter(letter.reason for letter in letters).most_common()
    counted = ", ".join(f"{count:,} {reason}" for reason, count in reasons)
    return f"{amount(len(letters), 'event')} ({counted})"


def newest(letter: Letter) -> str:
    """The newest letter as an example, and what to do with all of them."""
    number, offset = letter.partition.number, letter.offset
    model = f", model {letter.model}" if letter.model else ""
    error = letter.error if len(letter.error) <= SHOWN else f"{letter.error[:SHOWN]} ..."
    return (
        f"The newest, of {when(letter.at) or 'an unknown time'} at {number}/{offset}{model}, is {letter.reason}: "
        f"{error}. All of them: omdml letters list --open. One: omdml letters explain {number}/{offset}. "
        "Once the cause is fixed: omdml letters resend. If nobody can or will fix it: omdml letters dismiss "
        f"--reason {letter.reason}"
    )
