"""A base class for services that are started at the beginning of a `with` block and closed at its end."""

from types import TracebackType
from typing import Self


class Started:
    """A context manager that calls `start` and `close`. It also calls `close` if `start` fails."""

    def start(self) -> Self:
        """Start everything that is not running, and wait until it is ready."""
        raise NotImplementedError

    def close(self) -> None:
        """End everything, and remove its files."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
