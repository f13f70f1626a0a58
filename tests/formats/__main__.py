"""``python -m tests.formats``: write a sample of each format whose number has none yet, and of each new learner.

``python -m tests.formats --replace checkpoint`` writes that sample again under its present number: right only as long
as no release has written this number. Otherwise raise the number in omdml/formats.py first; the older sample stays, and
must load or be refused. A Valkey is started for what lies in Redis.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from deploy.local import ValkeyServer
from tests.formats.redis_samples import samples
from tests.formats.samples import HERE, SAMPLES, Sample


def write(sample: Sample, replace: bool) -> str:
    """Write a sample if there is none, if a learner has none, or if it is to be replaced; returns what was done."""
    folder = HERE / f"{sample.name}-{sample.format.number}"
    missing = sample.missing()
    if folder.exists() and not replace and not missing:
        return "is there"
    with tempfile.TemporaryDirectory() as other:
        written = Path(other) / "sample"
        written.mkdir()
        sample.write(written)
        # Samples of other learners stay as they are: a release may have written them.
        if missing and not replace:
            for name in missing:
                shutil.copy(written / name, folder)
            return f"{', '.join(missing)} written"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(written, folder)
    return "written"


def main(replaced: list[str]) -> None:
    """Write all samples that are missing; ``replaced`` are the names of those to write again."""
    with ValkeyServer() as server:
        every = [*SAMPLES, *samples(server.url)]
        if unknown := set(replaced) - {sample.name for sample in every}:
            sys.exit(f"no format {', '.join(sorted(unknown))}: there are {', '.join(entry.name for entry in every)}")
        for sample in every:
            print(f"{sample.name}-{sample.format.number}: {write(sample, sample.name in replaced)}")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    main(arguments[1:] if arguments[:1] == ["--replace"] else [])
