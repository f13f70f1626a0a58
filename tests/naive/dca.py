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
    """W V (1 - 1/b)+ V' W with W = S^(-1/2) and W T W = V diag(b) V'."""
    W = root_inverse(S)
    b, V = np.linalg.eigh(W @ T @ W)
    gain = np.array([max(0.0, 1 - 1 / value) if value > 0 else 0.0 for value in b])
    return W @ V @ np.diag(gain) @ V.T @ W


def learned(N, C, n, effective, items, variances):
    """M (d, d), up to scale, of covariance C of items and sums N of near pairs; None if no direction is left."""
    d = len(variances)
    added = min(0.8 * math.sqrt(d / min(effective, 4 * items)), 3.0) * np.trace(N / n) / d
    share = 0.3 * d / (0.3 * d + min(n, 4 * items))
    T = share * np.diag(variances) + (1 - share) * C
    seen = [i for i in range(d) if variances[i] > 0.3 * added]
    if added == 0 or not seen:
        return None
    M = np.zeros((d, d))
    S = N[np.ix_(seen, seen)] / n + added * np.eye(len(seen))
    M[np.ix_(seen, seen)] = closed_form(S, T[np.ix_(seen, seen)])
    return M if np.trace(M) > 1e-12 else None


def distance(p, q, M):
    """|unit(A p) - unit(A q)|^2 with A'A = M; what has no length is at distance 1 from what has."""
    pp, qq = p @ M @ p, q @ M @ q
    cosine = p @ M @ q / math.sqrt(pp * qq) if pp > 0 and qq > 0 else 0.0
    return float(pp > 0) + float(qq > 0) - 2 * cosine


def following(version):
    """The next version at which the metric is made again."""
    return max(version + 1, math.ceil(round(version * (1.07 if version < 1000 else 1.2), 6)))


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


def dca(rows, centred, basis, variances, memory):
    """Scores of triplets of items (n, D), N, the weights' sum, and what is served at the end: M, the plain share."""
    items, slots = centred @ basis.T, [slot(item) for item in centred]
    d, keep = items.shape[1], 1 - 1 / memory if memory else 1.0
    N, n, squares, M, share, due, scores = np.zeros((d, d)), 0.0, 0.0, None, 1.0, 1, []
    both, centre, met = np.zeros((d, d)), np.zeros(d), set()
    for version, (q, r, s) in enumerate(rows, 1):
        near, far = (
            share * distance(items[q], items[other], np.eye(d))
            + (0.0 if M is None else (1 - share) * distance(items[q], items[other], M))
            for other in (r, s)
        )
        scores.append(near - far)
        z, m = (shortened(v, 8 * sum(variances)) for v in (items[q] - items[r], (items[q] + items[r]) / 2))
        N, n, squares = keep * N + np.outer(z, z) / 2, keep * n + 1, keep**2 * squares + 1
        both = keep * both + np.outer(m, m) + np.outer(z, z) / 4
        centre = keep * centre + m
        met |= {slots[q], slots[r]}
        if version == due or version == len(rows):
            C = both / n - np.outer(centre / n, centre / n)
            made = learned(N, C, n, n**2 / squares, counted(met), variances)
            faded = 5 / (5 + n)
            faded = 1.0 if made is None else faded if faded >= 0.005 else 0.0
        if version == due:
            M, share = made, faded
            due = min(following(version), version + max(1, memory // 10)) if memory else following(version)
    return np.array(scores), N, n, made, faded
