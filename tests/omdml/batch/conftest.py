"""What tests of batch starts have in common."""

import pytest

from omdml.blas import one_blas_thread


@pytest.fixture(autouse=True)
def _one_blas_thread():
    """Solve on one thread, as commands do: two wait for each other in small problems, and take three times as long."""
    with one_blas_thread():
        yield
