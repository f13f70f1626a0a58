"""The files that run and monitor omdml: units, manifests, an image, rules, two boards, and their pages.

In the repository they are in the folder ``deploy``. The build puts the same files into the package. It does so in
``setup.py``, which imports this file before anything that omdml depends on is installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

PACKAGED = Path(__file__).parent / "deployment_files"
REPOSITORY = Path(__file__).resolve().parents[2]
FOLDERS = ("compose", "container", "grafana", "kubernetes", "prometheus", "systemd")
# The files that make the board and the image stay in the repository.
LEFT_OUT = (".py", ".pyc", ".ts", "panels.toml", "build.sh", "try.sh")


def write(folder: Path) -> list[Path]:
    """Write all files into a folder, which is made if it does not exist; returns their paths inside it.

    Raises FileExistsError if there is something in the folder, or it is a file: nothing is written then.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(folder)
    written = []
    for source, path in files():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        written.append(path)
    return written


def files() -> Iterator[tuple[Path, Path]]:
    """Each file, and its path inside the folder that it is written to."""
    if PACKAGED.is_dir():
        yield from ((file, file.relative_to(PACKAGED)) for file in sorted(PACKAGED.rglob("*")) if file.is_file())
        return
    yield REPOSITORY / "constraints.txt", Path("constraints.txt")
    deploy = REPOSITORY / "deploy"
    top = [file for file in deploy.iterdir() if file.is_file()]
    for file in sorted([*top, *(file for name in FOLDERS for file in (deploy / name).rglob("*") if file.is_file())]):
        if not file.name.endswith(LEFT_OUT):
            yield file, file.relative_to(deploy)
