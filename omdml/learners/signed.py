"""Signed: how much of an attribute an item has, learned from ordered pairs (relative attributes, LAW 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from omdml.learners.shared.base import Array
from omdml.learners.shared.vectors import VectorLearner
from omdml.metrics.diagonal import SignedMetric

if TYPE_CHECKING:
    from omdml.engines.diagonal import DiagonalEngine


class Signed(VectorLearner):
    """A relative attribute, learned from ordered pairs (Parikh and Grauman; Law 2015, 2.4): weights of any sign.

    ``D(p, q) = sum_i w_i . (p_i - q_i)`` with weights w_i (d_i,) says how much more of the attribute p has than q. A
    comparison of a near pair (difference a) and a far pair (difference b) has ``f = w . (a - b)``. Each comparison
    changes the weights; ``[...]`` is 1 if true and 0 otherwise:

        w <- w - eta lam w - rate [f + margin > 0] (a - b).

    "Item p has more than item q" is the far pair (p, q) against the near pair (q, q). :mod:`omdml.builders` draws such
    comparisons, and the quadruplets of LAW. Each attribute needs a model of its own. Triplets make no sense here, and
    are refused.

    Departures: the rate is capped at ``loss / |a - b|^2`` with ``loss = f + margin``, and ``eta lam`` at 1; the start
    is 0, because no direction is known. On yaleb it learned the order of the five levels of illumination from 20,000
    ordered pairs (test items not learned from, features scaled to [0, 1]). It orders 0.994 of the pairs right at any
    eta from 0.01 to 100. The fixed rate orders 0.995 right at 0.01, and 0.991 at 0.1.

    Parameters
    ----------
    dims
        Dimension d_i of each modality, by name.
    eta
        Largest rate of a step, > 0, in units of features to the power -2; with ``step="ogd"`` the rate itself.
    lam
        Weight of the regulariser, >= 0. It acts at every comparison.
    step
        ``"pa"`` (capped) or ``"ogd"`` (the thesis' fixed rate).
    init
        ``"zero"``, or arrays (d_i,), used as they are.
    dtype
        ``"float32"`` or ``"float64"``.
    seed
        Without effect, because a start at 0 draws nothing; every learner has this parameter.

    Examples
    --------
    >>> import numpy as np
    >>> from omdml.builders import from_ordered_pairs
    >>> draw = np.random.default_rng(0)
    >>> age = draw.uniform(0, 80, 300)
    >>> features = {"face": np.stack([age / 80 + draw.normal(0, 0.1, 300), draw.normal(0, 1, 300)], axis=1)}
    >>> rows, margin = from_ordered_pairs(age.round(-1), 500, seed=0)
    >>> model = Signed(dims={"face": 2})
    >>> model.learn_many(rows, features, margin=margin).mistakes
    38
    >>> model.matrices["face"].round(2)
    array([ 1.78, -0.02], dtype=float32)
    """

    name: ClassVar[str] = "signed"
    accepts: ClassVar[frozenset[str]] = frozenset({"quadruplet"})
    step_changes = "rows"
    no_embedding = "it learns from ordered pairs how much of an attribute an item has, which is no distance"
    starts: ClassVar[frozenset[str]] = frozenset({"zero"})

    def __init__(
        self,
        dims: Mapping[str, int],
        eta: float = 0.01,
        lam: float = 1e-4,
        step: str = "pa",
        init: str | Mapping[str, ArrayLike] = "zero",
        dtype: str = "float32",
        seed: int = 0,
    ) -> None:
        self.dims = dims
        self.eta = eta
        self.lam = lam
        self.step = step
        self.init = init
        self.dtype = dtype
        self.seed = seed
        self._prepare()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"dims": {"a": 4, "b": 3}}

    def _sampled(self, features: Mapping[str, Array]) -> dict[str, Array]:
        return {name: np.zeros(size) for name, size in self.dims.items()}

    def _begin(self, start: Mapping[str, Array]) -> DiagonalEngine:
        from omdml.engines.diagonal import DiagonalEngine
        from omdml.kernels.diagonal import Rule

        rule = Rule(float(self.eta), float(self.lam), exact=self.step == "pa", centred=False, signed=True)
        return DiagonalEngine({name: start[name] for name in self.dims}, rule)

    @property
    def metric(self) -> SignedMetric:
        """The metric to serve, of all that was learned so far. Raises NotStarted."""
        return SignedMetric(self.matrices)
