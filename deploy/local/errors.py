"""The error that this package raises."""


class ServiceError(RuntimeError):
    """Raised if a service, or something that it needs, cannot be fetched, started or used.

    Parameters
    ----------
    what
        What went wrong, with what was expected.
    where
        The service or piece, with its file, folder or port.
    do
        What the reader can do about it.
    log
        The last lines that the program wrote, if any.
    """

    def __init__(self, what: str, *, where: str, do: str, log: str = "") -> None:
        quoted = "".join(f"\n    | {line}" for line in log.splitlines())
        super().__init__(f"{where}: {what}{quoted}\n  What to do: {do}")
        self.what = what
        self.where = where
        self.do = do
        self.log = log
