"""The engine of second-order learning: moments of near pairs and of their items, and what is served (MATHS 12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.linalg.blas import dsyrk

from omdml.blas import one_blas_thread
from omdml.engines.base import Array, Engine, fill, with_copies
from omdml.engines.discriminant import catalogue_share, discriminant_rows, shrinkage, told_apart
from omdml.engines.distinct import SLOTS, distinct, mark
from omdml.errors import CorruptError
from omdml.kernels.counts import FILLED, UPDATES, VERSION
from omdml.kernels.covariance import add_scores, gather, tally

BLOCK, TILE = 64, 32  # near pairs added at a time; triplets scored at a time: both part of the arithmetic
STRIDE = 10  # refreshes while as many pairs come as are remembered
PLAIN, FADED = 5.0, 0.005  # triplets that plain features count for; a share below this one is 0
PAIRS_AN_ITEM = 4
REACH = 8.0  # squared length of a pair, in units of the catalogue's variance: two items at random differ by 2 of them
LIMITS = {"float32": 1e36, "float64": 1e250}  # largest squared length of a centred item
CONSTANT = ("mean", "basis", "deviations")
SYMMETRIC = ("near", "middle")
PARTLY_USED = ("Q", "R", "W")


class State(NamedTuple):
    """What a model is; D numbers an item, d principal coordinates."""

    mean: Array  # (D,)          of the catalogue
    basis: Array  # (d, D)       its principal directions
    deviations: Array  # (d,)    roots of its variances along them
    near: Array  # (d, d)        sum of z z' / 2 over the differences z of near pairs; the upper triangle
    middle: Array  # (d, d)      sum of m m' over the midpoints m of near pairs; the upper triangle
    centre: Array  # (d,)        sum of these midpoints
    sums: Array  # (2,)          of these pairs' weights, and of their squares
    seen: Array  # (SLOTS / 8,)  which items were in near pairs, see distinct.py
    Q: Array  # (BLOCK, D)       queries of the open block
    R: Array  # (BLOCK, D)       and what was relevant
    W: Array  # (d, D)           what scores, as of the last refresh: the first ``used`` rows
    used: Array  # (1,)
    share: Array  # (1,)         of the plain features there
    next: Array  # (1,)          version of the next refresh
    counts: Array  # (4,)        see counts.py


class Moments(NamedTuple):
    """What is summed over near pairs; see State."""

    near: Array
    middle: Array
    centre: Array
    sums: Array
    seen: Array


class CovarianceEngine(Engine):
    """Second moments of near pairs, and what is made of them.

    What is served is made whenever somebody asks. What scores triplets before they are learned is made again at
    versions that depend on the count alone: a refresh for every triplet would cost a thousand times what learning it
    does.

    Parameters
    ----------
    dims
        Dimension of each modality, in the order in which they lie side by side.
    start
        ``mean`` (D,), ``basis`` (d, D) and ``deviations`` (d,) of the catalogue, of one floating type. Copied.
    memory
        Pairs over which the sums fade; 0 never forgets.
    """

    block = BLOCK
    state: State

    def __init__(self, dims: Mapping[str, int], start: Mapping[str, Array], memory: float) -> None:
        self.rule = 1.0 - 1.0 / memory if memory else 1.0
        self.stride = max(1, int(memory / STRIDE)) if memory else 2**53
        self.shape = np.array(list(dims.values()), np.int64)
        (d, D), dtype = start["basis"].shape, start["basis"].dtype
        state = State(
            mean=start["mean"].copy(),
            basis=start["basis"].copy(),
            deviations=start["deviations"].copy(),
            near=np.zeros((d, d)),
            middle=np.zeros((d, d)),
            centre=np.zeros(d),
            sums=np.zeros(2),
            seen=np.zeros(SLOTS // 8, np.uint8),
            Q=np.zeros((BLOCK, D), dtype),
            R=np.zeros((BLOCK, D), dtype),
            W=np.zeros((d, D), dtype),
            used=np.zeros(1, np.int64),
            share=np.ones(1),
            next=np.ones(1, np.int64),
            counts=np.zeros(4, np.int64),
        )
        super().__init__(list(dims), state)
        # Version of the last refresh, if it was made here: another one's W may be older than its sums.
        self._refreshed_at = -1
        self.limit = LIMITS[dtype.name]

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An engine that learns by itself; what it knows of the catalogue, which nobody changes, is shared."""
        memo.update({id(array): array for array in (getattr(self.state, name) for name in CONSTANT)})
        # Zeros take no time, and no memory before they are written to.
        partly = (getattr(self.state, name) for name in PARTLY_USED)
        memo.update({id(array): np.zeros(array.shape, array.dtype) for array in partly})
        twin = super().__deepcopy__(memo)
        for part, before in zip(twin._used(), self._used(), strict=True):
            part[...] = before
        return twin

    def _keep(self, events: int) -> list[tuple[Array, Array]]:
        """What undoes this many events: the open block only grows until it closes."""
        state, filled = self.state, self.state.counts[FILLED]
        if filled + events < BLOCK and state.counts[VERSION] + events < state.next[0]:
            return with_copies([state.counts])
        whole = (getattr(state, name) for name in state._fields if name not in (*CONSTANT, *PARTLY_USED))
        return with_copies([*whole, *self._used()])

    def _used(self) -> list[Array]:
        """What counts of the arrays of which only the first rows do: Q, R and W."""
        state, filled = self.state, self.state.counts[FILLED]
        return [state.Q[:filled], state.R[:filled], state.W[: state.used[0]]]

    def _walk(self, rows: Array, addresses: Array, columns: Sequence[Array], scores: Array) -> int:
        state, t, items = self.state, 0, self._tile()
        # projections of what is too large overflow; the triplet is then refused
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            while t < len(rows):
                filled, version = int(state.counts[FILLED]), int(state.counts[VERSION])
                due = int(state.next[0]) - version
                end = min(len(rows), t + TILE - filled % TILE, t + due)
                done = self._learn_tile(rows[t:end], addresses, items, filled, scores[t:end])
                if t + done < end:
                    return t + done
                if end - t == due:
                    self._flush()
                    self.refresh()
                elif filled + end - t == BLOCK:
                    self._flush()
                t = end
        return t

    def _tile(self) -> Array:
        """Room for the items of a tile: made for each call, so that thousands of models need not keep theirs."""
        return np.zeros((3 * TILE, self.state.W.shape[1]), self.state.W.dtype)

    def _learn_tile(self, rows: Array, addresses: Array, items: Array, filled: int, scores: Array) -> int:
        """Score some triplets of one tile and keep their near pairs; how many were sound."""
        state, first, count = self.state, filled % TILE, len(rows)
        sound = gather(rows, addresses, self.shape, state.mean, first, items, self.limit)
        if sound < count:
            return int(sound)
        self._keep_pairs(items, filled, first, count)
        scores[:] = 0.0
        # The whole tile is multiplied whatever is in it. A triplet has its own rows, so its bytes depend neither on
        # how many share the call nor on what they are.
        for share, matrix in self._experts():
            add_scores(items @ matrix.T, first, share, scores)
        return int(tally(scores, state.counts))

    def _keep_pairs(self, items: Array, filled: int, first: int, count: int) -> None:
        """Take the near pairs of triplets of the tile, from the one in place ``first`` on, into the open block."""
        for side, block in enumerate((self.state.Q, self.state.R)):
            block[filled : filled + count] = items[3 * first + side : 3 * (first + count) : 3]

    def add_pairs(self, pairs: Array, tables: Sequence[Array], known: Array) -> None:
        """Add near pairs in order, scoring none, and refresh.

        Parameters
        ----------
        pairs : (n, 2)
            Row numbers, int64, in range; ``known`` are those that the caller gave.
        tables
            The modalities' matrices, C-contiguous, of the engine's type.

        Raises
        ------
        FeedbackError
            A pair whose numbers are not finite or too large; ``row`` says which. Those before it were added.
        """
        state, counts, items = self.state, self.state.counts, self._tile()
        addresses = np.array([table.__array_interface__["data"][0] for table in tables], np.uint64)
        # the kernel takes triplets; a third item that is the second one changes nothing
        rows = np.ascontiguousarray(pairs[:, (0, 1, 1)])
        with one_blas_thread():
            for start in range(0, len(rows), TILE):
                tile, filled = rows[start : start + TILE], int(counts[FILLED])
                sound = int(gather(tile, addresses, self.shape, state.mean, 0, items, self.limit))
                self._keep_pairs(items, filled, 0, sound)
                for place in (FILLED, VERSION, UPDATES):
                    counts[place] += sound
                if sound < len(tile):
                    index = start + sound
                    raise self._refusal(index, pairs[index], tables, known[index])
                if counts[FILLED] > BLOCK - TILE:
                    self._flush()
            self._flush()
        self.refresh()

    def _experts(self) -> list[tuple[float, Array]]:
        """Share and matrix of what scores: the plain coordinates, and the learned rows."""
        state, plain = self.state, float(self.state.share[0])
        both = [(plain, state.basis), (1.0 - plain, state.W[: state.used[0]])]
        return [(share, matrix) for share, matrix in both if share > 0]

    def served(self) -> dict[str, tuple[float, Array]]:
        """Share and matrix (r, D) of each expert, made of all pairs learned so far, those of the open block included.

        It depends on the state alone, and takes about as long as a refresh, but no time right after one.
        """
        if self._refreshed_at == self.version and not self.state.counts[FILLED]:
            plain, learned = float(self.state.share[0]), self.state.W[: self.state.used[0]].copy()
        else:
            with one_blas_thread():
                plain, learned = self._made(self.moments())
        named = {"plain": (plain, self.state.basis), "learned": (1.0 - plain, learned)}
        return {name: expert for name, expert in named.items() if expert[0] > 0}

    def moments(self) -> Moments:
        """What is known of all near pairs, those of the open block included; copies."""
        found = Moments(*(array.copy() for array in self._moments()))
        self._add_block(found)
        return found

    def _moments(self) -> Moments:
        """What is known of the pairs of closed blocks: the state's own arrays."""
        return Moments(*(getattr(self.state, name) for name in Moments._fields))

    def _add_block(self, to: Moments) -> None:
        """Add the near pairs of the open block to moments, in place."""
        filled, state = int(self.state.counts[FILLED]), self.state
        if not filled:
            return
        queries, relevant = state.Q[:filled], state.R[:filled]
        mark(to.seen, queries)
        mark(to.seen, relevant)
        weights = self.rule ** np.arange(filled - 1, -1, -1.0)
        fade = self.rule**filled
        most = REACH * float((state.deviations.astype(np.float64) ** 2).sum())
        differences, middles = (
            shortened((vectors @ state.basis.T).astype(np.float64), most)
            for vectors in (queries - relevant, (queries + relevant) / 2)
        )
        to.centre[:] = fade * to.centre + weights @ middles
        to.sums[:] = fade * to.sums[0] + weights.sum(), fade**2 * to.sums[1] + (weights**2).sum()
        for matrix, factor, vectors in ((to.near, 0.5, differences), (to.middle, 1.0, middles)):
            if self.rule < 1:
                vectors *= np.sqrt(weights)[:, None]
            # BLAS counts columns: its lower triangle of the transpose is our upper one
            dsyrk(factor, vectors.T, fade, matrix.T, lower=1, overwrite_c=1)

    def _flush(self) -> None:
        """End the block: its near pairs go into the moments."""
        self._add_block(self._moments())
        self.state.counts[FILLED] = 0

    def refresh(self) -> None:
        """Make what scores the next triplets of the closed blocks, and set the version of the next refresh."""
        state = self.state
        with one_blas_thread():
            state.share[0], rows = self._made(self._moments())
        state.used[0] = len(rows)
        state.W[: len(rows)] = rows
        version = self._refreshed_at = int(state.counts[VERSION])
        state.next[0] = min(next_refresh(version), version + self.stride)

    def _made(self, moments: Moments) -> tuple[float, Array]:
        """Share of the plain coordinates, and the learned rows (k, D), of these moments."""
        state = self.state
        near, items, added, variances = covariances(moments, state.deviations.astype(np.float64) ** 2)
        rows = discriminant_rows(near, items, added, variances)
        # The other coordinates were left out: their numbers are zeros.
        width = len(near)
        plain = PLAIN / (PLAIN + float(moments.sums[0]))
        share = 1.0 if not len(rows) else plain if plain >= FADED else 0.0
        return share, (rows[:, :width] @ state.basis[:width]).astype(state.W.dtype, copy=False)

    def covariance(self) -> Array:
        """Covariance (d, d) of near pairs, open block included."""
        found = self.moments()
        return symmetric(found.near) / (found.sums[0] or 1.0)

    def absorb(self, other: CovarianceEngine) -> None:
        """Add the sums and counts of another engine of the same basis, open blocks included, and refresh."""
        self._flush()
        added, state = other.moments(), self.state
        for name in ("near", "middle", "centre", "sums"):
            getattr(state, name)[:] += getattr(added, name)
        state.seen[:] |= added.seen
        state.counts[:] += other.state.counts
        self.state.counts[FILLED] = 0
        self.refresh()

    def to_tensors(self) -> dict[str, Array]:
        """The state: what counts of the open block and of W, and one triangle of each symmetric matrix."""
        state, filled = self.state, int(self.state.counts[FILLED])
        tensors = super().to_tensors()
        for name in SYMMETRIC:
            tensors[name] = getattr(state, name)[np.triu_indices(len(state.near))]
        tensors |= {"Q": state.Q[:filled], "R": state.R[:filled], "W": state.W[: state.used[0]]}
        return tensors

    @staticmethod
    def shapes(tensors: Mapping[str, Array], width: int) -> dict[str, tuple[int, ...]]:
        """Of the start's arrays, and of the triangles, in a state; raises CorruptError."""
        deviations = tensors.get("deviations")
        if deviations is None or deviations.ndim != 1 or not len(deviations):
            raise CorruptError("state lacks the deviations of its coordinates")
        d = len(deviations)
        triangles = dict.fromkeys(SYMMETRIC, (d * (d + 1) // 2,))
        return {"mean": (width,), "basis": (d, width), "deviations": (d,), **triangles}

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        self._refreshed_at = -1
        state, d = self.state, len(self.state.near)
        for name in state._fields:
            if name not in (*SYMMETRIC, "Q", "R", "W"):
                fill(getattr(state, name), tensors[name], name)
        filled, used = self._filled(), int(state.used[0])
        if not (0 <= used <= d and state.counts[VERSION] < state.next[0] and 0 <= state.share[0] <= 1):
            raise ValueError(f"{used} rows, share {state.share[0]} and next refresh {state.next[0]} fit no learning")
        for name in SYMMETRIC:
            triangle = np.zeros(d * (d + 1) // 2)
            fill(triangle, tensors[name], name)
            getattr(state, name)[np.triu_indices(d)] = triangle
        for name, count in {"Q": filled, "R": filled, "W": used}.items():
            fill(getattr(state, name)[:count], tensors[name], name)

    def _filled(self) -> int:
        version, due = self.state.counts[VERSION], self.state.next[0]
        if not 0 <= version < due:
            raise ValueError(f"counts are {self.state.counts.tolist()}, expected fewer than {due} comparisons")
        return super()._filled()


def covariances(moments: Moments, variances: Array) -> tuple[Array, Array, float, Array]:
    """What :func:`discriminant_rows` takes: covariance of near pairs, that of items, what is added, and ``variances``.

    The covariance of items is that of those in near pairs, within pairs and between them. It takes the place of the
    catalogue's as pairs come in. Pairs beyond PAIRS_AN_ITEM for each item count for nothing: few items that are clicked
    over and over say little of the others. Both covariances are of the leading coordinates that are not left out.
    """
    d, (total, squares) = len(variances), moments.sums
    most, pairs = PAIRS_AN_ITEM * distinct(moments.seen), total or 1.0
    # of faded pairs, as many count as would give an unweighed mean the same variance (Kish)
    effective = min(total**2 / squares if squares else 1.0, most or 1.0)
    added = shrinkage(effective, d) * float((moments.near.diagonal() / pairs).sum()) / d
    width = told_apart(variances, added)
    near, middle = (matrix[:width, :width] / pairs for matrix in (moments.near, moments.middle))
    centre = moments.centre[:width] / pairs
    share = catalogue_share(min(total, most), d)
    everything = (1 - share) * (near / 2 + middle - np.outer(centre, centre))
    everything[np.diag_indices(width)] += share * variances[:width]
    return near, everything, added, variances


def shortened(vectors: Array, most: float) -> Array:
    """Vectors (n, d) whose squared length is ``most`` at most: those beyond keep their direction.

    One pair with an item a thousand times as far out as others would be most of what a million pairs sum up to.
    """
    squares = np.einsum("ij,ij->i", vectors, vectors)
    shorter = np.sqrt(most / np.maximum(squares, max(most, 1e-300)))
    bounded: Array = vectors * shorter[:, None]
    return bounded


def symmetric(upper: Array) -> Array:
    """The matrix (d, d) whose upper triangle this one has."""
    kept = np.triu(upper)
    both: Array = kept + np.triu(kept, 1).T
    return both


def next_refresh(version: int) -> int:
    """The version after this one at which what scores is made again: 7 % more triplets, 20 % beyond a thousand."""
    percent = 107 if version < 1_000 else 120
    return max(version + 1, -(-version * percent // 100))
