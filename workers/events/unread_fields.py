"""Fields of events that nothing reads: some are a sender's own, and others are mistyped, such as ``usr``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from omdml.feedback import AnyFeedback, unread_fields
from omdml.messages.suggestion import nearest
from omdml.workers.configuration.wording import amount

# A sender may use any number of names. Only the first COUNTED are counted, and NAMED of them are shown, cut to
# CHARACTERS.
COUNTED, NAMED, CHARACTERS = 100, 10, 40
# Searches have a field of this name. `omdml forget` would not find events that name their session only in it.
OTHER_WORDS = {"session": "user"}


class UnreadFields:
    """How many events have a field that nothing reads.

    Attributes
    ----------
    counts
        The number of events with each field.
    meant
        The optional field that the sender probably meant: its name is close, and the first event with the unread one
        does not have it.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.meant: dict[str, str] = {}

    def add(self, payload: bytes, event: AnyFeedback, content_type: str = "application/json") -> None:
        """Look at an event that was decoded from this payload."""
        for name in unread_fields(payload, event, content_type):
            name = name[:CHARACTERS]
            if name not in self.counts:
                if len(self.counts) == COUNTED:
                    continue
                unset = missing(event)
                if OTHER_WORDS.get(name) in unset:
                    self.meant[name] = OTHER_WORDS[name]
                elif near := nearest(name, unset):
                    self.meant[name] = near
            self.counts[name] += 1

    def in_words(self, names: Collection[str]) -> str:
        """These fields as text. If there are many: those that seem mistyped, then the most frequent ones."""
        ordered = sorted(names, key=lambda name: (name not in self.meant, -self.counts[name]))
        words = [self._in_words(name) for name in ordered[:NAMED]]
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        return ", ".join(words) + more

    def _in_words(self, name: str) -> str:
        question = f"; did you mean {self.meant[name]!r}?" if name in self.meant else ""
        return f"{name!r} ({amount(self.counts[name], 'event')}{question})"


def missing(event: AnyFeedback) -> list[str]:
    """The optional fields that an event does not set."""
    names = event.__struct_fields__[-len(event.__struct_defaults__) :]
    return [
        name for name, default in zip(names, event.__struct_defaults__, strict=True) if getattr(event, name) == default
    ]
