"""What the section of a model must hold: a learner, a catalogue, hyperparameters that the learner takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from omdml import DEFAULT_LEARNER, LEARNER_CLASSES
from omdml.errors import ConfigurationError, ParameterError
from omdml.messages.suggestion import suggestion
from omdml.workers.configuration.checks.mistakes import Mistakes
from omdml.workers.configuration.checks.parts import check_name_of_model, check_parts
from omdml.workers.configuration.checks.sections import as_table, only_known
from omdml.workers.configuration.config import COORDINATES, OF_ANY_LEARNER, defaults, is_pattern

if TYPE_CHECKING:
    from omdml.learners import Learner


def checked_model(name: str, entry: object, catalogues: Mapping[str, Any], thorough: bool = True) -> dict[str, Any]:
    """The section of a model with its defaults written out; raises ConfigurationError with all of its mistakes.

    Unless this is to be ``thorough``, learners are imported only if nothing is wrong that is found without them.
    """
    if not name.strip():
        raise ConfigurationError(f"models.{name!r}: expected a section [models.NAME] with a name or a pattern in it")
    where, mistakes = f"models.{name}", Mistakes()
    with mistakes.noted():
        check_name_of_model(name)
    options = dict(as_table(entry, where))
    learner = options.pop("learner", DEFAULT_LEARNER)
    is_known = isinstance(learner, str) and learner in LEARNER_CLASSES
    if not is_known:
        mistakes.note(f"{where}.learner is {learner!r}{suggestion(str(learner), LEARNER_CLASSES)}")
    catalogue = _checked_catalogue(options, catalogues, where, mistakes)
    if not thorough:
        mistakes.report()
    from omdml.learners import LEARNERS

    def option(key: str, default: Any, fits: Callable[[Any], bool], expected: str) -> Any:
        """Take an option out; its default instead of a value that does not fit."""
        value = options.pop(key, default)
        if fits(value):
            return value
        mistakes.note(f"{where}.{key} is {value!r}, expected {expected}")
        return default

    own_coordinates = LEARNERS[learner].coordinates if is_known else COORDINATES[0]
    coordinates = option("coordinates", own_coordinates, lambda value: value in COORDINATES, "'features' or 'mapped'")
    if coordinates == "mapped" and is_known:
        options = {**LEARNERS[learner].on_mapped, **options}
    expand = option("expand", 0, lambda value: type(value) is int and 0 <= value <= 100, "0 (off) to 100")
    index = option("index", "exact", lambda value: value in ("exact", "approximate"), "'exact' or 'approximate'")
    candidates = options.pop("candidates", "")
    with mistakes.noted():
        check_candidates(name, candidates, learner if is_known else None, index)
    max_models = options.pop("max_models", None)
    if max_models is not None and not is_pattern(name):
        mistakes.note(f"{where}.max_models: only a pattern such as 'shop-*' covers many models: leave it out here")
    parent = option("parent", "", lambda value: isinstance(value, str), "the name of a model, in quotes")
    share = option(
        "max_share_a_user",
        1.0,
        lambda value: type(value) in (int, float) and 0 < value <= 1,
        "a share above 0, at most 1 (no limit)",
    )
    parts = options.pop("parts", False)
    check_parts(name, parts, learner if is_known else None, options, parent, share, mistakes)
    # If the learner is unknown, the options of every learner are accepted.
    option_names = defaults(learner) if is_known else [option for name in LEARNER_CLASSES for option in defaults(name)]
    options = only_known(options, [*OF_ANY_LEARNER, *dict.fromkeys(option_names)], where, mistakes)
    if is_known:
        _check_parameters(LEARNERS[learner], options, where, mistakes)
    mistakes.report()
    options_of_model = {"learner": learner, "catalogue": catalogue, "coordinates": coordinates, "parameters": options}
    options_of_model |= {"parent": parent, "expand": expand, "index": index, "max_share_a_user": share, "parts": parts}
    options_of_model["candidates"] = candidates
    return options_of_model if max_models is None else {**options_of_model, "max_models": max_models}


def _checked_catalogue(
    options: dict[str, Any], catalogues: Mapping[str, Any], where: str, mistakes: Mistakes
) -> object:
    """Take the option ``catalogue`` out of a model's options; without it, the only catalogue is meant."""
    if not catalogues:
        mistakes.note(f"{where}: there is no catalogue: add [catalogues.NAME], or pass --catalogue")
        return options.pop("catalogue", None)
    if len(catalogues) > 1 and "catalogue" not in options:
        mistakes.note(f"{where}.catalogue is not set: name one of {', '.join(catalogues)}")
    catalogue = options.pop("catalogue", next(iter(catalogues)))
    if not isinstance(catalogue, str) or catalogue not in catalogues:
        mistakes.note(f"{where}.catalogue is {catalogue!r}{suggestion(str(catalogue), catalogues)}")
    return catalogue


def _check_parameters(learner: type[Learner], options: Mapping[str, Any], where: str, mistakes: Mistakes) -> None:
    """Try the options on a learner, each time without those that were wrong."""
    options = dict(options)
    while True:
        try:
            learner(dims=_dims_of(options), **options)
            return
        except (ParameterError, TypeError) as error:
            mistakes.note(f"{where}: {error}")
            # The message begins with the parameter: "rank=0: expected ...".
            name, _, _ = str(error).partition("=")
            if name not in options:
                return
            del options[name]


def check_candidates(name: str, address: object, learner: str | None, index: object) -> None:
    """Raise ConfigurationError if this model cannot have this option ``candidates``, with each reason.

    ``learner`` is None if it is not known.
    """
    where = f"models.{name}.candidates"
    if not isinstance(address, str):
        raise ConfigurationError(f"{where} is {address!r}, expected an address, such as 'lancedb:FOLDER'")
    if not address:
        return
    reasons = []
    if is_pattern(name):
        reasons.append("an index holds one model, and a pattern covers many: give the model a section of its own")
    if index == "approximate":
        reasons.append(
            "index = 'approximate' needs all items in the node, and candidates come from outside: remove one of the two"
        )
    if learner:
        from omdml.learners import LEARNERS

        if "tasks" in defaults(learner):
            reasons.append(
                f"an index holds the items in the sense of one task, and {learner} has several: leave it out"
            )
        elif LEARNERS[learner].no_embedding:
            reasons.append(f"the metric of {learner} has no vectors of items that an index could hold: leave it out")
    if reasons:
        raise ConfigurationError(*(f"{where}: {reason}" for reason in reasons))


def _dims_of(options: Mapping[str, Any]) -> dict[str, int]:
    """Dimensions that try a learner's options: any will do, unless groups of coordinates say what there must be."""
    groups = options.get("groups")
    if not isinstance(groups, Mapping) or not groups:
        return {"any": 1}
    sizes = {name: len(group) if isinstance(group, list) else group for name, group in groups.items()}
    return {name: size if isinstance(size, int) and size > 0 else 1 for name, size in sizes.items()}
