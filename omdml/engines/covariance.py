"""The engine of second-order learning: moments of near pairs and of their items, and what is served (MATHS 12)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from omdml.blas import one_blas_thread
from omdml.engines.base import Array, Engine, fill, with_copies
from omdml.engines.discriminant import discriminant_rows
from omdml.engines.distinct import SLOTS, codes
from omdml.engines.moments import LEARNED, REACH, Moments, covariances, symmetric
from omdml.errors import CorruptError
from omdml.kernels.counts import FILLED, UPDATES, VERSION
from omdml.kernels.covariance import gather, hedged, margins_of, tally
from omdml.metrics.cosine import projected

BLOCK, TILE = 64, 32  # near pairs added at a time; triplets scored at a time: both part of the arithmetic
RECENT = 64  # triplets among which answers to one search are told
STRIDE = 10  # refreshes while as many pairs come as are remembered
PLAIN, FADED = 5.0, 0.005  # triplets that plain features count for; a share below this one is 0
LIMITS = {"float32": 1e36, "float64": 1e250}  # largest squared length of a centred item
CONSTANT = ("mean", "basis", "deviations")
SYMMETRIC = ("near", "far", "middle")
OPEN = ("Q", "R", "S")
PARTLY_USED = (*OPEN, "W")


class State(NamedTuple):
    """What a model is; D numbers an item, d principal coordinates. For the sums see Moments."""

    mean: Array  # (D,)          of the catalogue
    basis: Array  # (d, D)       its principal directions; (0, D) if an item's numbers are its coordinates, d = D
    deviations: Array  # (d,)    roots of its variances along them
    near: Array  # (d, d)
    far: Array  # (d, d)
    middle: Array  # (d, d)
    centre: Array  # (d,)
    sums: Array  # (3,)
    seen: Array  # (SLOTS / 8,)
    Q: Array  # (BLOCK, D)       queries of the open block
    R: Array  # (BLOCK, D)       what was relevant
    S: Array  # (BLOCK, D)       and what was not
    W: Array  # (2, d, D)        what scores, as of the last refresh: of each learned expert, the first ``used`` rows
    used: Array  # (2,)
    share: Array  # (1,)         of the plain features there
    hedge: (
        Array  # (4,)         losses of the two, of both as weighed, and the triplets they are of; fading like the sums
    )
    asked: Array  # (RECENT,)    codes of the last queries, by version
    made: Array  # (1,)          version of the last refresh
    next: Array  # (1,)          and of the next one
    counts: Array  # (4,)        see counts.py


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
        ``mean`` (D,), ``basis`` (d, D) or (0, D), and ``deviations`` (d,) of the catalogue, of one floating type.
        Copied.
    memory
        Pairs over which the sums fade; 0 never forgets.
    """

    block = BLOCK
    state: State

    def __init__(self, dims: Mapping[str, int], start: Mapping[str, Array], memory: float) -> None:
        self.rule = 1.0 - 1.0 / memory if memory else 1.0
        self.stride = max(1, int(memory / STRIDE)) if memory else 2**53
        self.shape = np.array(list(dims.values()), np.int64)
        d, D, dtype = len(start["deviations"]), len(start["mean"]), start["mean"].dtype
        state = State(
            mean=start["mean"].copy(),
            basis=start["basis"].copy(),
            deviations=start["deviations"].copy(),
            near=np.zeros((d, d)),
            far=np.zeros((d, d)),
            middle=np.zeros((d, d)),
            centre=np.zeros(d),
            sums=np.zeros(3),
            seen=np.zeros(SLOTS // 8, np.uint8),
            Q=np.zeros((BLOCK, D), dtype),
            R=np.zeros((BLOCK, D), dtype),
            S=np.zeros((BLOCK, D), dtype),
            W=np.zeros((len(LEARNED), d, D), dtype),
            used=np.zeros(len(LEARNED), np.int64),
            share=np.ones(1),
            hedge=np.zeros(len(LEARNED) + 2),
            asked=np.zeros(RECENT, np.uint64),
            made=np.zeros(1, np.int64),
            next=np.ones(1, np.int64),
            counts=np.zeros(4, np.int64),
        )
        super().__init__(list(dims), state)
        self.weights = np.zeros(len(LEARNED))
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
            return with_copies([state.hedge, state.asked, state.counts])
        whole = (getattr(state, name) for name in state._fields if name not in (*CONSTANT, *PARTLY_USED))
        return with_copies([*whole, *self._used()])

    def _used(self) -> list[Array]:
        """What counts of the arrays of which only the first rows do."""
        filled = self.state.counts[FILLED]
        return [*(block[:filled] for block in self._open()), *self._rows()]

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
        return np.zeros((3 * TILE, self.state.W.shape[2]), self.state.W.dtype)

    def _learn_tile(self, rows: Array, addresses: Array, items: Array, filled: int, scores: Array) -> int:
        """Score some triplets of one tile and keep their near pairs; how many were sound."""
        state, first, count = self.state, filled % TILE, len(rows)
        sound = gather(rows, addresses, self.shape, state.mean, first, items, self.limit)
        if sound < count:
            return int(sound)
        self._keep_items(items, filled, first, count)
        margins = np.zeros((1 + len(LEARNED), count))
        # The whole tile is multiplied whatever is in it. A triplet has its own rows, so its bytes depend neither on
        # how many share the call nor on what they are.
        if state.share[0] > 0:
            margins_of(projected(items, state.basis), first, margins[0])
        for of_one, matrix in zip(margins[1:], self._rows(), strict=True):
            if len(matrix):
                margins_of(items @ matrix.T, first, of_one)
        asked = codes(items[3 * first : 3 * (first + count) : 3])
        share, made = float(state.share[0]), int(state.made[0])
        known = state.asked, made, state.hedge, self.weights
        return int(tally(margins, share, self.rule, asked, *known, scores, state.counts))

    def _keep_items(self, items: Array, filled: int, first: int, count: int) -> None:
        """Take the items of triplets of the tile, from the one in place ``first`` on, into the open block."""
        for side, block in enumerate(self._open()):
            block[filled : filled + count] = items[3 * first + side : 3 * (first + count) : 3]

    def _open(self) -> list[Array]:
        """Queries, what was relevant, and what was not, of the open block."""
        return [getattr(self.state, name) for name in OPEN]

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
                self._keep_items(items, filled, 0, sound)
                for place in (FILLED, VERSION, UPDATES):
                    counts[place] += sound
                if sound < len(tile):
                    index = start + sound
                    raise self._refusal(index, pairs[index], tables, known[index])
                if counts[FILLED] > BLOCK - TILE:
                    self._flush(far=False)
            self._flush(far=False)
        self.refresh()

    def served(self) -> dict[str, tuple[float, Array]]:
        """Share and matrix (r, D) of each expert, made of all pairs learned so far, those of the open block included.

        It depends on the state alone, and takes about as long as a refresh, but no time right after one. A matrix
        without rows stands for the coordinates as they are.
        """
        weights = self._weights()
        fresh = self._refreshed_at == self.version and not self.state.counts[FILLED]
        moments = self._moments() if fresh else self.moments()
        plain = self._plain(moments)
        wanted = [name for name, weight in weights.items() if (1 - plain) * weight >= FADED]
        rows = self._scoring(wanted) if fresh else self._made(moments, wanted)
        learned = sum(weights[name] for name in rows)
        if not rows:
            return {"plain": (1.0, self.state.basis)}
        experts = {"plain": (plain, self.state.basis)} if plain else {}
        return experts | {name: ((1 - plain) * weights[name] / learned, rows[name]) for name in rows}

    def _scoring(self, names: Sequence[str]) -> dict[str, Array]:
        """The rows of these experts as of the last refresh, as far as it found any; copies."""
        parts = {name: rows for name, rows in zip(LEARNED, self._rows(), strict=True) if name in names and len(rows)}
        return {name: rows.copy() for name, rows in parts.items()}

    def _rows(self) -> list[Array]:
        """What counts of W, by expert."""
        return [rows[:used] for rows, used in zip(self.state.W, self.state.used, strict=True)]

    def _plain(self, moments: Moments) -> float:
        """Share of the plain coordinates beside learned ones."""
        plain = PLAIN / (PLAIN + float(moments.sums[0]))
        return plain if plain >= FADED else 0.0

    def _weights(self) -> dict[str, float]:
        """Hedge's weight of each learned expert, 1 together."""
        hedged(self.state.hedge, self.weights)
        return dict(zip(LEARNED, self.weights.tolist(), strict=True))

    def moments(self) -> Moments:
        """What is known of all pairs, those of the open block included; copies."""
        found = Moments(*(array.copy() for array in self._moments()))
        self._add_block(found)
        return found

    def _moments(self) -> Moments:
        """What is known of the pairs of closed blocks: the state's own arrays."""
        return Moments(*(getattr(self.state, name) for name in Moments._fields))

    def _add_block(self, to: Moments, far: bool = True) -> None:
        """Add the pairs of the open block to moments, in place; ``far`` ones too, if it has any."""
        filled, state = int(self.state.counts[FILLED]), self.state
        if not filled:
            return
        items = [block[:filled] for block in self._open()]
        for named in items[:2]:
            to.mark(named)
        with one_blas_thread():
            q, r, s = (projected(item, state.basis).astype(np.float64) for item in items)
            most = REACH * float((state.deviations.astype(np.float64) ** 2).sum())
            to.add((q, r), (q, s) if far else (q[:0], s[:0]), self.rule, most)

    def _flush(self, far: bool = True) -> None:
        """End the block: its pairs go into the moments."""
        self._add_block(self._moments(), far)
        self.state.counts[FILLED] = 0

    def refresh(self) -> None:
        """Make what scores the next triplets of the closed blocks, and set the version of the next refresh."""
        state, moments = self.state, self._moments()
        rows = self._made(moments, LEARNED)
        state.share[0] = self._plain(moments) if rows else 1.0
        for place, name in enumerate(LEARNED):
            made = rows.get(name, state.W[place, :0])
            state.used[place] = len(made)
            state.W[place, : len(made)] = made
        state.made[0] = version = self._refreshed_at = int(state.counts[VERSION])
        state.next[0] = min(next_refresh(version), version + self.stride)

    def _made(self, moments: Moments, names: Sequence[str]) -> dict[str, Array]:
        """The rows (k, D) of these experts, as far as these moments have any."""
        state, found = self.state, {}
        compared = covariances(moments, state.deviations.astype(np.float64) ** 2)
        others = {name: compared.others[name] for name in names if name in compared.others}
        if not len(compared.kept):
            return {}
        for name, rows in discriminant_rows(compared.near, others, compared.added).items():
            if len(state.basis):
                with one_blas_thread():
                    found[name] = (rows @ state.basis[compared.kept]).astype(state.W.dtype, copy=False)
            else:
                found[name] = np.zeros((len(rows), len(state.mean)), state.W.dtype)
                found[name][:, compared.kept] = rows
        return found

    @property
    def hedge_loss(self) -> float:
        """Loss of both learned experts as weighed, from 0 to 1 a triplet."""
        return float(self.state.hedge[len(LEARNED)])

    @property
    def hedge_loss_bound(self) -> float:
        """What it can at most be, without fading (Cesa-Bianchi and Lugosi 2006, Theorem 2.3)."""
        each, count, experts = self.state.hedge[: len(LEARNED)], float(self.state.hedge[-1]), math.log(len(LEARNED))
        return float(each.min()) + 2 * math.sqrt(count / 2 * experts) + math.sqrt(experts / 8)

    def covariance(self) -> Array:
        """Covariance (d, d) of near pairs, open block included."""
        found = self.moments()
        return symmetric(found.near) / (found.sums[0] or 1.0)

    def absorb(self, other: CovarianceEngine) -> None:
        """Add the sums and counts of another engine of the same basis, open blocks included, and refresh."""
        self._flush()
        added, state = other.moments(), self.state
        for name in ("near", "far", "middle", "centre", "sums"):
            getattr(state, name)[:] += getattr(added, name)
        state.seen[:] |= added.seen
        state.hedge[:] += other.state.hedge
        state.counts[:] += other.state.counts
        self.state.counts[FILLED] = 0
        self.refresh()

    def to_tensors(self) -> dict[str, Array]:
        """The state: what counts of the open block and of W, and one triangle of each symmetric matrix."""
        state, filled = self.state, int(self.state.counts[FILLED])
        tensors = super().to_tensors()
        for name in SYMMETRIC:
            tensors[name] = getattr(state, name)[np.triu_indices(len(state.near))]
        tensors |= {name: getattr(state, name)[:filled] for name in OPEN}
        tensors["W"] = np.concatenate(self._rows())
        return tensors

    @staticmethod
    def shapes(tensors: Mapping[str, Array], width: int) -> dict[str, tuple[int, ...]]:
        """Of the start's arrays, and of the triangles, in a state; raises CorruptError."""
        deviations = tensors.get("deviations")
        if deviations is None or deviations.ndim != 1 or not len(deviations):
            raise CorruptError("state lacks the deviations of its coordinates")
        d = len(deviations)
        triangles = dict.fromkeys(SYMMETRIC, (d * (d + 1) // 2,))
        directions = len(tensors["basis"]) if "basis" in tensors and tensors["basis"].ndim == 2 else d
        if directions not in (d, 0) or (not directions and d != width):
            raise CorruptError(f"state of {directions} directions for {d} coordinates of {width} numbers")
        return {"mean": (width,), "basis": (directions, width), "deviations": (d,), **triangles}

    def _fill(self, tensors: Mapping[str, Array]) -> None:
        self._refreshed_at = -1
        state, d = self.state, len(self.state.near)
        for name in state._fields:
            if name not in (*SYMMETRIC, *OPEN, "W"):
                fill(getattr(state, name), tensors[name], name)
        filled, used = self._filled(), state.used
        if not (used.min() >= 0 and used.max() <= d and 0 <= state.share[0] <= 1 and state.hedge.min() >= 0):
            raise ValueError(f"{used} rows, share {state.share[0]} and losses {state.hedge} fit no learning")
        for name in SYMMETRIC:
            triangle = np.zeros(d * (d + 1) // 2)
            fill(triangle, tensors[name], name)
            getattr(state, name)[np.triu_indices(d)] = triangle
        for name in OPEN:
            fill(getattr(state, name)[:filled], tensors[name], name)
        rows = np.zeros((int(used.sum()), len(state.mean)), state.W.dtype)
        fill(rows, tensors["W"], "W")
        for place, part in enumerate(np.split(rows, used[:-1])):
            state.W[place, : len(part)] = part

    def _filled(self) -> int:
        version, due = self.state.counts[VERSION], self.state.next[0]
        if not 0 <= self.state.made[0] <= version < due:
            raise ValueError(f"counts are {self.state.counts.tolist()}, expected fewer than {due} comparisons")
        return super()._filled()


def next_refresh(version: int) -> int:
    """The version after this one at which what scores is made again: 7 % more triplets, 20 % beyond a thousand."""
    percent = 107 if version < 1_000 else 120
    return max(version + 1, -(-version * percent // 100))
