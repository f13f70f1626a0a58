"""The one error of this package."""


class ServiceError(RuntimeError):
    """A service, or a piece it needs, is not to be had.

    Parameters
    ----------
    what
        What went wrong, with what was got and expected.
    where
        The service or piece, and the file, folder or port it concerns.
    do
        What the reader can do about it.
    log
        The last lines that the program wrote, if any.
    """

    def __init__(self, what: str, *, where: str, do: str, log: str = "") -> None:
        said = "".join(f"\n    | {line}" for line in log.splitlines())
        super().__init__(f"{where}: {what}{said}\n  What to do: {do}")
        self.what = what
        self.where = where
        self.do = do
        self.log = log
