"""SetNet's one-event numpy loop: one judgement at a time, every element of it at once, gradients by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omdml.comparisons import Judgement

Array = NDArray[Any]
MOMENTUM, DECAY = 0.9, 0.001


def judgements(count: int, items: int) -> list[Judgement]:
    """Two query elements, two relevant and four irrelevant sets of two or three, all at random."""
    draw = np.random.default_rng(3)

    def sets(number: int) -> tuple[Array, ...]:
        return tuple(draw.choice(items, draw.integers(2, 4), replace=False) for _ in range(number))

    return [Judgement(draw.choice(items, 2, replace=False), sets(2), sets(4)) for _ in range(count)]


def setnet_loop(judged: Sequence[Judgement], x: Array, start: Mapping[str, Array], eta: float) -> dict[str, Array]:
    """The parameters after gradient steps at a fixed rate, with momentum and weight decay."""
    net = {name: np.array(array) for name, array in start.items()}
    velocity = {name: np.zeros_like(array) for name, array in net.items()}
    for judgement in judged:
        slopes = gradient(judgement, x, net)
        for name, slope in slopes.items():
            velocity[name] = MOMENTUM * velocity[name] - eta * (slope + DECAY * net[name])
            net[name] = net[name] + velocity[name]
    return net


def gradient(judgement: Judgement, x: Array, net: Mapping[str, Array]) -> dict[str, Array]:
    """Slopes of one judgement's logistic loss, by parameter (MATHS 8)."""
    query, relevant, irrelevant = judgement
    groups = [np.array([element]) for element in query] + list(relevant) + list(irrelevant)
    own = np.repeat(np.arange(len(groups)), [len(rows) for rows in groups])
    elements = x[np.concatenate(groups)]
    logits = elements @ net["A"].T + net["bias"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    residuals = elements[:, None, :] - net["c"]
    U, length_u = unit((shares[:, :, None] * residuals).reshape(len(elements), -1))
    total = np.zeros((len(groups), U.shape[1]), U.dtype)
    np.add.at(total, own, U)
    V, length_v = unit(total)
    v, length_y = unit(V @ net["P"].T + net["p0"])
    dw, db, dv = logistic(v, len(query), len(relevant), net)
    dy = behind_unit(dv, v, length_y)
    dV = behind_unit(dy @ net["P"], V, length_v)
    dR = behind_unit(dV[own], U, length_u).reshape(residuals.shape)
    ds = np.einsum("nkd,nkd->nk", dR, residuals)
    dl = shares * (ds - (shares * ds).sum(axis=1, keepdims=True))
    dc = -np.einsum("nk,nkd->kd", shares, dR)
    return {"A": dl.T @ elements, "bias": dl.sum(axis=0), "c": dc, "P": dy.T @ V, "p0": dy.sum(axis=0),
            "w": dw, "b": db}  # fmt: skip


def logistic(v: Array, queries: int, relevant: int, net: Mapping[str, Array]) -> tuple[Array, Array, Array]:
    """Slopes of the loss by w, by b and by every vector v (M, r)."""
    asked, sets = v[:queries], v[queries:]
    cosines = asked @ sets.T
    good = np.arange(len(sets)) < relevant
    sign = np.where(good, -1.0, 1.0)
    weight = np.where(good, 1 / (queries * relevant), 1 / (queries * (len(sets) - relevant)))
    dz = weight * sign / (1 + np.exp(-sign * (net["w"] * cosines + net["b"])))
    dcos = dz * net["w"]
    return (dz * cosines).sum(), dz.sum(), np.concatenate([dcos @ sets, dcos.T @ asked])


def unit(rows: Array) -> tuple[Array, Array]:
    """Rows of unit length, and their lengths (n, 1)."""
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return rows / lengths, lengths


def behind_unit(slopes: Array, rows: Array, lengths: Array) -> Array:
    """Slopes by what ``unit`` was given, from those by what it made."""
    return (slopes - rows * (slopes * rows).sum(axis=1, keepdims=True)) / lengths
