"""How simulated people search and mark: how much they look at, how many items they mark, how many marks are wrong.

Which marks teach most was measured on the digits. The table shows the mAP of test queries after 1,000 and after
10,000 comparisons; before, it was 0.72. Each search had three marks of each kind, 5 % of marks were wrong, and three
seeds differed by 0.01 at most.

===========================================================  =====  ======
marks that go to items of the page; others go anywhere       1,000  10,000
===========================================================  =====  ======
all                                                          0.83   0.88
none                                                         0.87   0.93
half                                                         0.88   0.94
a quarter of the relevant, three quarters of the irrelevant  0.89   0.95
the same, on pages of 10 instead of 50                       0.87   0.93
the same, sent as a ranking of 3 x 3                         0.87   0.93
only the irrelevant                                          0.91   0.95
===========================================================  =====  ======

A relevant item on the page teaches little. An irrelevant item on the page, or a relevant one that is missing, teaches
most. Three comparisons for each search teach more per comparison than nine. The demo's people mark as in the fourth
line, because real people also mark relevant items on the page now and then.
"""

from __future__ import annotations

from typing import NamedTuple

# The share of marks that say the opposite of the truth, unless --wrong says another one.
WRONG = 0.05


class Habits(NamedTuple):
    """How people search and mark.

    Parameters
    ----------
    page
        How many items of each answer they look at.
    marks
        How many items they mark as relevant in each search; they mark as many as irrelevant.
    relevant_shown, irrelevant_shown
        The share of marks of this kind that go to an item of the page, if one fits. The others go to items elsewhere.
    wrong
        The share of marks that say the opposite of the truth.
    """

    page: int = 50
    marks: int = 3
    relevant_shown: float = 0.25
    irrelevant_shown: float = 0.75
    wrong: float = WRONG
