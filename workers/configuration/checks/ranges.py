"""The ranges of options that are numbers. A number outside its range is a slip, or would cause another error later."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from omdml.workers.configuration.checks.mistakes import Mistakes

if TYPE_CHECKING:
    from omdml.workers.configuration.config import Configuration

DAY_S = 86_400.0
TERABYTE_MB = 1e6


class Range(NamedTuple):
    """The least and the most that an option may be, and why not less, if that needs a word."""

    least: float
    most: float
    why: str = ""


RANGES = {
    "worker.publish_interval_s": Range(0.001, DAY_S),
    "worker.checkpoint_interval_s": Range(0.01, DAY_S),
    "worker.max_poll_records": Range(1, 1_000_000),
    "worker.memory_mb": Range(1, TERABYTE_MB),
    "worker.save_mb_s": Range(0.001, TERABYTE_MB),
    "worker.new_models_s": Range(
        100,
        1_000_000,
        ": with fewer, other events wait for those of new models until the worker is expelled from its group",
    ),
    "node.memory_mb": Range(1, TERABYTE_MB),
    "guard.hold_out": Range(2, 1_000_000, ": one event in so many is held out (guard.on = false holds out none)"),
    "metrics.models": Range(1, 100_000),
    "webhook.timeout_s": Range(0.01, 3600),
    "log.session_timeout_s": Range(0.1, DAY_S),
    "log.start_timeout_s": Range(0.01, DAY_S),
    "log.letters_keep_mb": Range(0.001, TERABYTE_MB),
}


def check_ranges(configuration: Configuration) -> None:
    """Raise ConfigurationError for options that are out of their range, or not a number."""
    mistakes = Mistakes()
    for name, (least, most, why) in RANGES.items():
        section, option = name.split(".")
        # A log in files has other options than one in Kafka.
        value = getattr(getattr(configuration, section), option, least)
        if not least <= value <= most:
            mistakes.note(f"{name} is {plain(value)}, expected a number from {least:,} to {most:,.0f}{why}")
    mistakes.report()


def plain(value: int | float) -> str:
    """A number in a few words; a whole one may have thousands of digits."""
    if isinstance(value, int) and abs(value) >= 10**24:
        return f"a number of {int(math.log10(abs(value))) + 1:,} digits"
    return f"{value:g}" if isinstance(value, float) else str(value)
