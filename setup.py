"""Puts the files of ``deploy`` into the package, for ``omdml deploy export``; all else is in pyproject.toml."""

import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).parent))
from workers.operate import deployment


class WithDeployment(build_py):
    """An editable installation has the folder itself."""

    def run(self):
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "omdml" / deployment.PACKAGED.relative_to(deployment.REPOSITORY)
            # What an earlier build left.
            shutil.rmtree(target, ignore_errors=True)
            deployment.write(target)


setup(cmdclass={"build_py": WithDeployment})
