"""Puts the files of ``deploy`` into the package, for ``omdml deploy export``, and makes source archives whose bytes
depend on nothing but the files, their names and SOURCE_DATE_EPOCH; all else is in pyproject.toml."""

import gzip
import importlib.util
import os
import shutil
import sys
import tarfile
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
for folder in ("streams", "workers"):
    # A link to the folder beside it; in a source archive the folder itself.
    if not (ROOT / "omdml" / folder).is_dir():
        sys.exit(
            f"omdml: omdml/{folder} is no link to the folder {folder}: this checkout was made without symbolic links "
            "(Git on Windows, or core.symlinks=false). Run: git config core.symlinks true && git checkout -- "
            "omdml/streams omdml/workers. On Windows turn on its developer mode before that, or work in WSL"
        )
# Not by an import of omdml: nothing that it depends on is there yet.
PLACE = Path("omdml/workers/operate/deployment.py")
spec = importlib.util.spec_from_file_location("deployment", ROOT / PLACE)
deployment = importlib.util.module_from_spec(spec)
spec.loader.exec_module(deployment)
deployment.REPOSITORY = ROOT


class WithDeployment(build_py):
    """An editable installation has the folder itself."""

    def run(self):
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / PLACE.parent / deployment.PACKAGED.name
            # What an earlier build left.
            shutil.rmtree(target, ignore_errors=True)
            deployment.write(target)


class Reproducible(sdist):
    """setuptools writes the times, users and order of the moment into the archive."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):  # noqa: A002
        epoch = os.environ.get("SOURCE_DATE_EPOCH")
        if epoch is None or format != "gztar":
            return super().make_archive(base_name, format, root_dir, base_dir, owner, group)

        def plain(entry):
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = int(epoch), 0, 0, "", ""
            entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            return entry

        name, top = f"{base_name}.tar.gz", Path(root_dir or ".")
        with (
            open(name, "wb") as file,
            gzip.GzipFile("", "wb", mtime=int(epoch), fileobj=file) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in sorted([top / base_dir, *(top / base_dir).rglob("*")]):
                archive.add(path, path.relative_to(top).as_posix(), recursive=False, filter=plain)
        return name


setup(cmdclass={"build_py": WithDeployment, "sdist": Reproducible})
