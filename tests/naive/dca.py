"""Slow literal twin of DCA: one event at a time, float64, the metric as the closed form W V (1 - 1/b)+ V' W."""

from __future__ import annotations

import math
import struct

import numpy as np


def root_inverse(S):
    """S^(-1/2) of a positive definite matrix."""
    values, vectors = np.linalg.eigh(S)
    return vectors @ np.diag(values**-0.5) @ vectors.T


def closed_form(S, T):
    """W V (1 - 1/b)+ V' W with W = S^(-1/2) and W T W = V diag(b) V', the smallest b left out."""
    W = root_inverse(S)
    b, V = np.linalg.eigh(W @ T @ W)
    above = [value - 1 if value - 1 > 1e-6 else 0.0 for value in b]
    rest, gain = 0.0, np.zeros(len(b))
    for i in range(len(b)):
        rest += above[i]
        if rest > 0.005 * sum(above):
            gain[i] = 1 - 1 / b[i]
    return W @ V @ np.diag(gain) @ V.T @ W


def learned(N, F, C, n, n_far, effective, items, variances):
    """M (d, d), up to scale, of each expert; None if no direction is left.

    N and F are the sums of n near and n_far far pairs, C the covariance of items in near pairs.
    """
    d = len(variances)
    if n == 0:
        return {"items": None, "far": None}
    added = min(0.8 * math.sqrt(d / min(effective, 4 * items)), 3.0) * np.trace(N / n) / d
    share = 0.3 * d / (0.3 * d + min(n, 4 * items))
    T = {"items": share * np.diag(variances) + (1 - share) * C}
    trusted = min(1.0, n_far / n)
    T["far"] = (F / n_far + added * np.eye(d)) * trusted + (1 - trusted) * T["items"] if n_far else T["items"]
    seen = [i for i in range(d) if variances[i] > 0.3 * added]
    results = {}
    for name, compared in T.items():
        M = np.zeros((d, d))
        if added > 0 and seen:
            S = N[np.ix_(seen, seen)] / n + added * np.eye(len(seen))
            M[np.ix_(seen, seen)] = closed_form(S, compared[np.ix_(seen, seen)])
        results[name] = M if np.trace(M) > 1e-12 else None
    return results


def weights(losses, count):
    """Hedge, at the rate sqrt(8 ln 2 / (count + 1))."""
    rate = math.sqrt(8 * math.log(2) / (count + 1))
    raw = {name: math.exp(-rate * (loss - min(losses.values()))) for name, loss in losses.items()}
    return {name: weight / sum(raw.values()) for name, weight in raw.items()}


def distance(p, q, M):
    """|unit(A p) - unit(A q)|^2 with A'A = M; a vector without length is at distance 1 from one with length."""
    pp, qq = p @ M @ p, q @ M @ q
    cosine = p @ M @ q / math.sqrt(pp * qq) if pp > 0 and qq > 0 else 0.0
    return float(pp > 0) + float(qq > 0) - 2 * cosine


def following(version):
    """The next version at which the metric is made again."""
    return max(version + 1, math.ceil(round(version * 1.2, 6)))


def shortened(vector, most):
    """The vector, or the one of this squared length in its direction if it is longer."""
    return vector * min(1.0, math.sqrt(most / max(vector @ vector, 1e-300)))


def factor(place):
    """The number of splitmix64 at this place, made odd."""
    z = place * 0x9E3779B97F4A7C15 % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31 | 1


def slot(item):
    """The slot of 8,192 that the bytes of an item fall into."""
    words = struct.unpack(f"<{item.nbytes // 4}I", item.tobytes())
    return sum(word * factor(place) for place, word in enumerate(words, 1)) % 2**64 >> 51


def counted(slots):
    """About how many different items fill these slots."""
    return 8192 * math.log(8192 / (8192 - len(slots)))


def parent_share(ahead, count, memory):
    """The share of an earlier metric after ``count`` events that told or were pairs.

    ``ahead`` has its lead in those that told, the newest last.
    """
    weights = []
    for number in range(1, len(ahead) + 1):
        fading = 1 - 1 / (min(number, memory) if memory else number)
        weights = [weight * fading for weight in weights] + [1.0]
    total = sum(weights) or 1.0
    mean = sum(weight * lead for weight, lead in zip(weights, ahead, strict=True)) / total
    square = sum(weight * lead**2 for weight, lead in zip(weights, ahead, strict=True)) / total
    z = 2 * mean / math.sqrt(max(square - mean**2, 0.0) + 0.05**2) * math.sqrt(max(total, 1.0))
    return 10 / (10 + count * math.exp(-z))


def fitted(parent, N, n):
    """M of each expert of a parent, fitted to n near pairs with the sum N."""
    results = {}
    for name, M in parent.items():
        values, vectors = np.linalg.eigh(M)
        directions = vectors[:, values > 1e-9 * values.max()]
        root = directions @ np.diag(np.sqrt(values[values > 1e-9 * values.max()])) @ directions.T
        scatter = root @ N @ root
        spread = min(1.0, np.trace(scatter) / n / directions.shape[1]) if n else 0.0
        results[name] = M
        if spread > 0:
            results[name] = root @ np.linalg.inv((50 * np.eye(len(M)) + scatter / spread) / (50 + n)) @ root
    return results


def dca(rows, centred, basis, variances, memory, parent=None, counts=None):
    """Learn triplets ``rows`` of items (n, D); answers (scores, N, the sum of weights, M by expert, share by expert).

    The last two are what is served at the end. ``parent`` holds the same two of the model that this one begins with.
    ``counts`` is the weight of each triplet, 1 if not given.
    """
    items, slots = centred @ basis.T, [slot(item) for item in centred]
    d, keep = items.shape[1], 1 - 1 / memory if memory else 1.0
    nothing = {"items": None, "far": None}
    N, F, n, n_far, squares = np.zeros((d, d)), np.zeros((d, d)), 0.0, 0.0, 0.0
    M, share, due, scores = nothing, 1.0, 1, []
    both, centre, met = np.zeros((d, d)), np.zeros(d), set()
    ahead, raw_ahead, single, fit = [], [], 0, parent and parent[0]
    losses, scored, refreshed, asked = (
        {"items": 0.0, "far": 0.0},
        0.0,
        0,
        [item.tobytes() for item in centred[rows[:, 0]]],
    )
    counts = [1.0] * len(rows) if counts is None else counts
    for version, ((q, r, s), w) in enumerate(zip(rows, counts, strict=True), 1):
        margins = {
            name: 0.0 if A is None else distance(items[q], items[r], A) - distance(items[q], items[s], A)
            for name, A in (M | {"plain": np.eye(d)}).items()
        }
        hedge = weights(losses, scored)
        near, far = ((centred[q] != centred[other]).any() for other in (r, s))
        f = own = share * margins["plain"] + (1 - share) * sum(hedge[name] * margins[name] for name in hedge)
        if parent:
            raw, refitted = (
                sum(
                    part * (distance(items[q], items[r], A[name]) - distance(items[q], items[s], A[name]))
                    for name, part in parent[1].items()
                )
                for A in ({"plain": np.eye(d)} | parent[0], {"plain": np.eye(d)} | fit)
            )
            unfitted = parent_share(raw_ahead, len(ahead) + single, memory)
            elder = unfitted * raw + (1 - unfitted) * refitted
            trust = parent_share(ahead, len(ahead) + single, memory)
            f = trust * elder + (1 - trust) * own
        scores.append(f if near and far else 0.0)
        if near and far and asked[version - 1] not in asked[max(0, version - 65) : refreshed]:
            losses = {name: keep * losses[name] + (1 + np.clip(margins[name], -1, 1)) / 2 for name in hedge}
            scored = keep * scored + 1
            if parent:
                ahead.append(1.5 * (math.tanh(own / 1.5) - math.tanh(elder / 1.5)))
                raw_ahead.append(1.5 * (math.tanh(refitted / 1.5) - math.tanh(raw / 1.5)))
        single += not (near and far)
        z, m, g = (
            shortened(v, 8 * sum(variances))
            for v in (items[q] - items[r], (items[q] + items[r]) / 2, items[q] - items[s])
        )
        if near:
            N, n, squares = keep * N + w * np.outer(z, z) / 2, keep * n + w, keep**2 * squares + w**2
            both = keep * both + w * np.outer(m, m) + w * np.outer(z, z) / 4
            centre = keep * centre + w * m
            met |= {slots[q], slots[r]}
        if far:
            F, n_far = keep * F + w * np.outer(g, g) / 2, keep * n_far + w
        if version == due or version == len(rows):
            C = both / (n or 1) - np.outer(centre, centre) / (n or 1) ** 2
            made = learned(N, F, C, n, n_far, n**2 / (squares or 1), counted(met), variances)
            faded = 5 / (5 + n)
            faded = faded if faded >= 0.005 else 0.0
            fit_now = parent and fitted(parent[0], N, n)
        if version == due:
            refreshed, fit = version, fit_now
            M, share = made, faded if any(A is not None for A in made.values()) else 1.0
            due = min(following(version), version + max(1, memory // 10)) if memory else following(version)
    hedge = weights(losses, scored)
    for name, part in hedge.items():
        matters = part == max(hedge.values()) or part * math.sqrt(len(rows) - refreshed) >= 0.0015 * n
        if not matters and M[name] is not None:
            made[name] = M[name]
    experts = {name: A for name, A in made.items() if A is not None and (1 - faded) * hedge[name] >= 0.005}
    shares = {"plain": faded} if faded and experts else {}
    total = sum(hedge[name] for name in experts)
    shares |= {name: (1 - faded) * hedge[name] / total for name in experts}
    shares = shares if experts else {"plain": 1.0}
    if parent:
        trust, unfitted = (parent_share(leads, len(leads) + single, memory) for leads in (ahead, raw_ahead))
        metrics = [
            (1 - trust, "", experts, shares),
            (trust * unfitted, "parent ", parent[0], parent[1]),
            (trust * (1 - unfitted), "fitted ", fit_now, parent[1]),
        ]
        experts, shares = {}, {}
        for part, prefix, M, of_metric in (metric for metric in metrics if metric[0] >= 0.005):
            for name, share in of_metric.items():
                named = name if name == "plain" else prefix + name
                shares[named] = shares.get(named, 0.0) + part * share
                experts |= {named: M[name]} if name != "plain" else {}
        shares = {name: part / sum(shares.values()) for name, part in shares.items()}
    return np.array(scores), N, n, experts, shares
