"""Gathers the same problem of many models into one remark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from omdml.workers.doctor.findings import Remark

# How many models are named beside the first one.
NAMED = 5


def gathered(problems: Mapping[str, str], remark: Callable[[str], Remark]) -> list[Remark]:
    """One remark about a problem that these models have: the first in full, some others by name.

    Parameters
    ----------
    problems
        By model, the whole sentence about it.
    remark
        Makes the remark: :func:`omdml.workers.doctor.findings.warning` or :func:`omdml.workers.doctor.findings.error`.
    """
    if not problems:
        return []
    first, *others = problems
    problem = problems[first]
    if others:
        named = ", ".join(others[:NAMED]) + (f" and {len(others) - NAMED:,} more" if others[NAMED:] else "")
        problem += f". Likewise: {named}"
    return [remark(problem)]
