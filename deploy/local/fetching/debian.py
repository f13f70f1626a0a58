"""Unpacks packages of Debian and Ubuntu into the cache, as an ordinary user and without installing them."""

import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path

from deploy.local.errors import ServiceError
from deploy.local.fetching.tool import run


def release() -> str:
    """The name of distribution and processor, such as ``debian12-x86_64``. Packages differ between them."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    return f"{system.get('ID', 'linux')}{system.get('VERSION_ID', '')}-{platform.machine()}"


def unpack(package: str, into: Path, *, wanted: Callable[[str], bool], do: str) -> None:
    """Download `package` and those of its dependencies that are `wanted`, and unpack them into a folder.

    Parameters
    ----------
    package
        Name of the package.
    into
        An empty folder; it becomes the root of the unpacked files.
    wanted
        Says whether to take the dependency of this name. The others are expected on every machine with apt.
    do
        What a reader can do if this fails.
    """
    where = f"Debian package {package}"
    work = into / ".apt"
    options = _options(work)
    run(["apt-get", *options, "update"], where=where, do=do)
    listed = run(["apt-get", *options, "--print-uris", "-y", "install", package], where=where, do=do)
    names = [name for name in _names(listed) if name == package or wanted(name)]
    if package not in names:
        raise ServiceError("apt-get names nothing to download", where=where, do=do, log=listed[-2000:])
    run(["apt-get", *options, "download", *names], where=where, do=do, cwd=work / "debs")
    for archive in sorted((work / "debs").glob("*.deb")):
        run(["dpkg", "-x", archive, into], where=where, do=do)
    shutil.rmtree(work)
    _link_within(into)


def _options(work: Path) -> list[str]:
    """Options that give apt a state of its own. It reads the machine's sources, and writes only to `work`."""
    for inner in ("debs", "state/lists/partial", "cache/archives/partial"):
        (work / inner).mkdir(parents=True)
    nothing_installed = work / "state/status"
    nothing_installed.touch()
    settings = {
        "Dir::State": work / "state",
        "Dir::State::lists": work / "state/lists",
        "Dir::State::status": nothing_installed,
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": "root",
        "APT::Install-Recommends": "false",
        "Acquire::Retries": "3",
        "Debug::NoLocking": "true",
    }
    return ["-q", "-q", *(part for key, value in settings.items() for part in ("-o", f"{key}={value}"))]


def _names(listed: str) -> list[str]:
    """Package names in the output of ``--print-uris``: lines ``'address' name_version_machine.deb size digest``."""
    return [line.split()[1].split("_")[0] for line in listed.splitlines() if line.startswith("'")]


def _link_within(root: Path) -> None:
    """Turn absolute links, such as Maven's to ``/etc/maven``, into links to the unpacked files."""
    for link in [path for path in root.rglob("*") if path.is_symlink()]:
        goal = os.readlink(link)
        inside = root / goal.lstrip("/")
        if goal.startswith("/") and inside.exists():
            link.unlink()
            link.symlink_to(os.path.relpath(inside, link.parent))
