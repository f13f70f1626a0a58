"""How many events of a stretch of the log a model took. ``omdml doctor --audit`` compares this with the log."""

from __future__ import annotations

import msgspec

from omdml.streams.protocols.log import Partition


class Tally(msgspec.Struct):
    """What became of the events from the offset ``since`` up to the offset ``until``.

    If a model goes on at another position than the one at which its stretch ended, it begins a new stretch there, so
    that the sums always belong to the log. This happens if the model was reset, copied, rewound or rehomed, or if an
    older release saved it.

    Parameters
    ----------
    repeated
        Events that were passed over: they repeat the id of an earlier one, or an operator left them out.
    anew
        Whether the stretch began with the model's first event, without a checkpoint. Then the model learned nothing
        before ``since``.

    Examples
    --------
    >>> home, tally = Partition("log", 0), Tally()
    >>> tally.take(home, 3, learned=9, held=1)
    >>> tally.end(home, 13)
    >>> tally
    Tally(home='log/0', since=3, until=13, learned=9, held=1, repeated=0, anew=True)
    >>> tally.resumed(home, 13) is tally
    True
    >>> tally.resumed(home, 7)
    Tally(home='log/0', since=7, until=7, learned=0, held=0, repeated=0, anew=False)
    """

    home: str = ""
    since: int = 0
    until: int = 0
    learned: int = 0
    held: int = 0
    repeated: int = 0
    anew: bool = False

    def take(self, home: Partition, first: int, learned: int, held: int) -> None:
        """Count the events of a batch whose first one lies at the offset ``first``."""
        if self.home != str(home):
            self._begin(home, first, anew=not self.home)
        self.learned += learned
        self.held += held

    def end(self, home: Partition, until: int) -> None:
        """Note how far the model was taken; a model that took nothing since it came there begins there."""
        if self.home != str(home):
            self._begin(home, until)
        self.until = until

    def _begin(self, home: Partition, since: int, anew: bool = False) -> None:
        self.home, self.since, self.anew = str(home), since, anew
        self.learned = self.held = self.repeated = 0

    def resumed(self, home: Partition, begin: int) -> Tally:
        """The tally of a model that continues at this position."""
        if (self.home, self.until) == (str(home), begin):
            return self
        return Tally(str(home), begin, begin)
