"""Experiments that cannot run are refused."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping

from omdml.workers.configuration.checks.mistakes import Mistakes
from omdml.workers.configuration.config import ExperimentConfig

# It stands in the ids of searches, before a colon.
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_experiments(experiments: Mapping[str, ExperimentConfig], named: Container[str], mistakes: Mistakes) -> None:
    """Note why experiments cannot run; ``named`` are the models that the configuration names or covers."""
    taken: dict[str, str] = {}
    for name, experiment in experiments.items():
        where = f"experiments.{name}"
        if not NAME.fullmatch(name):
            mistakes.note(f"{where}: expected a name of 1 to 64 letters, digits or ._-")
        if (experiment.against_version is None) == (not experiment.against):
            mistakes.note(f"{where} needs exactly one of against and against_version: a model, or a version")
        if experiment.against == experiment.model:
            mistakes.note(f"{where}.against is {experiment.against!r}, the model itself: expected another one")
        if experiment.against_version is not None and experiment.against_version < 0:
            mistakes.note(f"{where}.against_version is {experiment.against_version}, expected 0 or more")
        for option, model in (("model", experiment.model), ("against", experiment.against)):
            if model and model not in named:
                mistakes.note(f"{where}.{option} is {model!r}, and no model is configured under this name")
        if not 0 < experiment.share <= 1:
            mistakes.note(f"{where}.share is {experiment.share:g}, expected a number above 0, at most 1")
        if (other := taken.setdefault(experiment.model, name)) != name:
            mistakes.note(
                f"{where}: experiments.{other} already uses the searches of {experiment.model!r}: expected one "
                "experiment for each model"
            )
