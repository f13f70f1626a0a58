"""Team draft interleaving as the paper words it, and the evidence in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from math import factorial


def team_draft(first, second, k, tosses):
    """Items and their teams; ``tosses`` says who picks first in each round that begins with equally large teams."""
    interleaved, teams = [], {0: set(), 1: set()}
    rankings = {0: first, 1: second}
    tosses = iter(tosses)
    while len(interleaved) < k:
        left = {team: [item for item in rankings[team] if item not in teams[0] | teams[1]] for team in (0, 1)}
        if not left[0] and not left[1]:
            break
        if len(teams[0]) == len(teams[1]):
            team = next(tosses)
        else:
            team = 0 if len(teams[0]) < len(teams[1]) else 1
        if not left[team]:
            team = 1 - team
        teams[team].add(left[team][0])
        interleaved.append((left[team][0], team))
    return interleaved


def evidence(first, second):
    """Likelihood of the outcome under a uniform win rate, over that under 1/2."""
    count = first + second
    return Fraction(2**count * factorial(first) * factorial(second), factorial(count + 1))
