"""Workers never pause in the tests of this folder."""

from tests.support.pauses import _no_waiting  # noqa: F401
