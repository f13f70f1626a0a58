"""Every compiled function; see README.md for what they may assume and how their cache behaves."""

from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]
