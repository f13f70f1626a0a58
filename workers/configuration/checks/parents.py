"""Which models may begin from which: what a configuration must say of a parent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from omdml.errors import ConfigurationError
from omdml.workers.configuration.checks.mistakes import Mistakes

if TYPE_CHECKING:
    from omdml.workers.configuration.config import ModelConfig

# Hyperparameters whose values may differ between a model and its parent.
MAY_DIFFER = ("memory",)


def check_parents(models: Mapping[str, ModelConfig], wrong: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Note each parent that no model can begin from. Nothing is said about parents whose own sections are ``wrong``.

    Of a model whose own section is wrong, nothing is known but the name of its parent. A parent has no parent itself.
    So nothing leads round in a circle, and what a model begins with has one source.
    """
    for name, section in wrong.items():
        parent = section.get("parent") if isinstance(section, dict) else None
        if isinstance(parent, str) and parent and parent not in models and parent not in wrong:
            mistakes.note(_no_section(f"models.{name}.parent is {parent!r}", parent))
    for name, config in models.items():
        if config.parent and config.parent not in wrong:
            with mistakes.noted():
                _check(name, config, models)


def _check(name: str, config: ModelConfig, models: Mapping[str, ModelConfig]) -> None:
    from omdml.learners import LEARNERS
    from omdml.workers.configuration.config import is_pattern

    where = f"models.{name}.parent is {config.parent!r}"
    parent = models.get(config.parent)
    if parent is None:
        raise ConfigurationError(_no_section(where, config.parent))
    if is_pattern(config.parent):
        raise ConfigurationError(f"{where}, a pattern, expected the name of one model")
    if config.parent == name:
        raise ConfigurationError(f"{where}, the model itself, expected another one")
    if parent.parent:
        raise ConfigurationError(
            f"{where}, which has the parent {parent.parent!r} itself: name {parent.parent!r} here too, or have "
            f"{config.parent!r} begin from nothing"
        )
    if not hasattr(LEARNERS[config.learner], "begin_from"):
        able = ", ".join(sorted(model for model, learner in LEARNERS.items() if hasattr(learner, "begin_from")))
        raise ConfigurationError(f"{where}: {config.learner} cannot begin from another model, only {able} can")
    for what in ("learner", "catalogue", "coordinates"):
        ours, theirs = getattr(config, what), getattr(parent, what)
        if ours != theirs:
            raise ConfigurationError(
                f"{where}: its {what} is {theirs!r}, this model's is {ours!r}, expected the same: otherwise "
                "this model cannot use what its parent learned"
            )
    ours, theirs = (_parameters(model) for model in (config, parent))
    if other := [f"{key} {theirs[key]!r} and {ours[key]!r}" for key in ours if ours[key] != theirs[key]]:
        raise ConfigurationError(
            f"{where}: the parent and this model have different parameters ({', '.join(other)}), expected the same "
            f"ones; only {', '.join(MAY_DIFFER)} may differ"
        )


def _parameters(config: ModelConfig) -> dict[str, Any]:
    from omdml.workers.configuration.config import defaults

    chosen = {**defaults(config.learner), **config.parameters}
    return {name: value for name, value in chosen.items() if name not in MAY_DIFFER}


def _no_section(where: str, parent: str) -> str:
    return f"{where}, expected a model that has a section of its own and not only a pattern: add [models.{parent}]"
