"""Runs a systemd in namespaces of its own. Units run under it as on a machine that was booted."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import time
from contextlib import suppress
from pathlib import Path

from deploy.local.fetching.fetch import Systemd
from tests.support.processes import ROOT, die_with_parent

# Run as the first process of new namespaces of mounts, processes and control groups. What it mounts is seen by nobody
# else, and gone with it. The system gets an /etc, /var/lib, /var/cache, /opt and /run of its own.
BOOT = """
set -eu
mount --make-rprivate /
mount -t proc proc /proc
umount -R -l /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
cp -a /etc {place}/etc
for folder in etc opt var/lib var/cache run; do
    mkdir -p {place}/$folder
    test $folder = opt || mount --bind {place}/$folder /$folder
done
mkdir -p {place}/opt/source {place}/opt/python {place}/opt/packages
mount --bind {source} {place}/opt/source
mount --bind {python} {place}/opt/python
mount --bind {packages} {place}/opt/packages
mount --rbind {place}/opt /opt
touch {place}/console
mount --bind {place}/console /dev/console
{sysusers} /opt/units/omdml.sysusers.conf
{tmpfiles} --create /opt/units/omdml.tmpfiles.conf
exec env -i PATH=$PATH container=other SYSTEMD_UNIT_PATH=/opt/units {libraries} \
    {systemd} --system --unit=started.target --log-target=console --log-level=notice
"""
STARTED = "[Unit]\nDefaultDependencies=no\n"
# The environment that the tests run in, under other names: units neither see /root nor write to /opt.
OMDML = """#!/bin/sh
export PYTHONPATH=/opt/source:/opt/packages LD_LIBRARY_PATH=/opt/python/lib
exec /opt/python/bin/python{version} -m omdml.workers.cli "$@"
"""


class CannotBoot(Exception):
    """Raised if this machine does not allow a systemd of its own."""


class Booted:
    """A running systemd with the units of ``deploy/systemd``; ``with`` ends it and all that it started.

    Parameters
    ----------
    place
        An empty folder, which the system's own folders lie in.
    """

    def __init__(self, systemd: Systemd, place: Path) -> None:
        self.systemd, self.place = systemd, place
        self._group = _group_folder() / f"omdml-{os.getpid()}-{time.monotonic_ns()}"

    def __enter__(self) -> Booted:
        units = self.place / "opt/units"
        units.mkdir(parents=True)
        for file in (ROOT / "deploy/systemd").glob("omdml*"):
            (units / file.name).write_text(file.read_text())
        # There is no journal to read.
        (units / "service.d").mkdir()
        (units / "service.d/output.conf").write_text("[Service]\nStandardError=append:%t/%N.log\n")
        for target in ("started", "sysinit", "basic", "shutdown", "network-online"):
            (units / f"{target}.target").write_text(STARTED)
        program = self.place / "opt/omdml/bin/omdml"
        program.parent.mkdir(parents=True)
        program.write_text(OMDML.format(version=sysconfig.get_python_version()))
        program.chmod(0o755)
        words = {
            "place": self.place,
            "source": ROOT,
            "python": sys.base_prefix,
            "packages": sysconfig.get_path("purelib"),
            **{name: self.systemd.program(f"systemd-{name}") for name in ("sysusers", "tmpfiles")},
            "systemd": self.systemd.program("systemd"),
        }
        libraries = " ".join(f"{name}={value}" for name, value in self.systemd.environment.items())
        script = BOOT.format(**{name: shlex.quote(str(value)) for name, value in words.items()}, libraries=libraries)
        try:
            self._group.mkdir()
        except OSError as error:
            raise CannotBoot(f"no control group can be made ({error}): be root") from error
        into_group = (
            f"echo $$ > {self._group}/cgroup.procs && exec unshare -C -m -p -f --kill-child sh -c {shlex.quote(script)}"
        )
        self.output = self.place / "boot.log"
        with self.output.open("wb") as output:
            self._unshare = subprocess.Popen(
                ["sh", "-c", into_group], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, **self.systemd.environment}, preexec_fn=die_with_parent,
            )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        deadline = time.monotonic() + 60
        while self.ask("is-system-running") not in ("running", "degraded"):
            if self._unshare.poll() is not None or time.monotonic() > deadline:
                raise CannotBoot(self.output.read_text(errors="replace")[-2000:])
            time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        self._unshare.kill()
        self._unshare.wait()
        # The kernel ends what ran in the namespaces; groups go when the last process of each has gone.
        deadline = time.monotonic() + 20
        while self._group.exists() and time.monotonic() < deadline:
            for folder, _, _ in os.walk(self._group, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)
            time.sleep(0.05)

    def ask(self, *arguments: str) -> str:
        """Run systemctl with these arguments; returns its output."""
        return self.inside(self.systemd.program("systemctl"), *arguments)

    def inside(self, *command: str | Path) -> str:
        """Run a program in the booted system; returns its output."""
        first = self._first_process()
        if first is None:
            return ""
        entered = ["nsenter", f"--target={first}", "--mount", "--pid", *command]
        environment = {**os.environ, **self.systemd.environment, "SYSTEMD_IGNORE_CHROOT": "1"}
        done = subprocess.run(entered, env=environment, capture_output=True, text=True, timeout=400, check=False)
        return (done.stdout or done.stderr).strip()

    def said(self, unit: str) -> str:
        """The standard error of a unit's processes."""
        file = self.place / f"run/{unit.removesuffix('.service')}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def show(self, unit: str, *properties: str) -> list[str]:
        """The values of some properties of a unit."""
        answer = self.ask("show", unit, *(f"--property={name}" for name in properties))
        values = dict(line.split("=", 1) for line in answer.splitlines())
        return [values[name] for name in properties]

    def _first_process(self) -> int | None:
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children")
        with suppress(OSError, IndexError):
            return int(children.read_text().split()[0])
        return None


def _group_folder() -> Path:
    """The folder at which control groups of version 2 are mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, folder, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(folder)
    raise CannotBoot("the kernel has no control groups of version 2")
