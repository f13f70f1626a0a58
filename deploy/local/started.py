"""What is started on entering a `with` block, and closed however that ends."""

from types import TracebackType
from typing import Self


class Started:
    """A context manager over `start` and `close`; what did not start is closed too."""

    def start(self) -> Self:
        """Start what does not run, and return when it serves."""
        raise NotImplementedError

    def close(self) -> None:
        """End it, and remove what it left behind."""
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
