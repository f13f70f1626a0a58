"""What DCA compares near its last rows, made from its sums in one pass over their upper triangles (MATHS 12 (k))."""

from __future__ import annotations

from numba import njit, types

from omdml.kernels import Array

_SUMS, _VECTOR, _NUMBERS = types.float64[:, ::1], types.float64[::1], (types.float64,) * 9
# Kernels are warmed up with a small model, which searches all directions and does not call this one. So it is compiled,
# or loaded, when this module is imported.
_SIGNATURES = [
    types.void(*(_SUMS,) * 3, types.uint64[::1], _VECTOR, _VECTOR, *_NUMBERS, *(dtype[:, ::1],) * 3)
    for dtype in (types.float32, types.float64)
]


# With Python's errors for a division by zero, the loop would not become vector instructions.
@njit(_SIGNATURES, cache=True, error_model="numpy")
def compare(
    near: Array,
    middle: Array,
    far: Array,
    coordinates: Array,
    centre: Array,
    catalogue: Array,
    weight: float,
    weight_far: float,
    pairs: float,
    pairs_far: float,
    share: float,
    mean_far: float,
    added: float,
    unit_items: float,
    unit_far: float,
    S: Array,
    items: Array,
    others: Array,
) -> None:
    """Write the upper triangles of S and both T (MATHS 12.3) in some coordinates, divided by lambda and by units.

    The numbers and their order are those of ``covariances`` in moments.py, so the bytes are the same, too.

    Parameters
    ----------
    near, middle, far : (d, d)
        Sums, see ``Moments``; multiplied by ``weight``, and ``far`` by ``weight_far``.
    coordinates : (c,)
        Numbers of the coordinates that count. They are unsigned: an index that could be negative would be checked.
    centre, catalogue : (c,)
        The mean midpoint, and ``share`` times the catalogue's variances.
    pairs, pairs_far, share, mean_far, added
        See ``Scales``.
    unit_items, unit_far
        What each T is divided by, so that single precision has room for it.
    S, items, others : (c, c)
        Written. ``others`` may be (0, 0): then *far* is left out.
    """
    with_far = others.shape[0] > 0
    for i in range(coordinates.shape[0]):
        near_row, middle_row, far_row = near[coordinates[i]], middle[coordinates[i]], far[coordinates[i]]
        for j in range(i, coordinates.shape[0]):
            place = coordinates[j]
            near_value = weight * near_row[place] / pairs
            middle_value = weight * middle_row[place] / pairs
            # These are 0 beside the diagonal.
            on_diagonal = 1.0 if i == j else 0.0
            items_value = (1 - share) * ((near_value / 2 + middle_value) - centre[i] * centre[j])
            items_value += on_diagonal * catalogue[i]
            S[i, j] = near_value / added + on_diagonal
            items[i, j] = items_value / unit_items
            if with_far:
                far_value = weight_far * far_row[place] / pairs_far + on_diagonal * (mean_far * added)
                far_value += (1 - mean_far) * items_value
                others[i, j] = far_value / unit_far
