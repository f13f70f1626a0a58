"""Checks that hold for every format; the tests of formats in Redis, which need a server, call them too."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from omdml.errors import OmdmlError
from tests.formats.samples import Sample

HOW = "python -m tests.formats --replace"


def check_that_kept_samples_load(sample: Sample, folder: Path) -> None:
    """Check that every number that this release reads loads, and that an older one is refused by its number."""
    assert sample.format.number in sample.kept(), f"no sample of {sample.name}: run python -m tests.formats"
    for number, sample_folder in sample.kept().items():
        copy = shutil.copytree(sample_folder, folder / str(number))
        if number >= sample.format.oldest:
            sample.read(copy)
        else:
            with pytest.raises(OmdmlError, match=rf"written by an older omdml \(format {number}, this one reads"):
                sample.read(copy)


def check_that_a_newer_number_is_refused(sample: Sample, folder: Path) -> None:
    """Check that the error names the number and what to do, and does not speak of damage."""
    number = sample.format.number
    copy = shutil.copytree(sample.kept()[number], folder / "newer")
    sample.renumber(copy, number)
    sample.read(copy)
    sample.renumber(copy, number + 1)
    message = rf"written by a newer omdml \(format {number + 1}, this one reads up to {number}\): run that release"
    with pytest.raises(OmdmlError, match=message) as caught:
        sample.read(copy)
    assert "damaged" not in str(caught.value)


def check_that_what_is_written_is_as_its_sample(sample: Sample, folder: Path) -> None:
    """Check that a file of today has the structure of the sample: another structure needs another number."""
    assert not sample.missing(), f"no sample of {', '.join(sample.missing())}: run python -m tests.formats"
    (folder / "today").mkdir()
    sample.write(folder / "today")
    of_sample, of_today = (
        json.dumps(sample.shape(written), indent=1, sort_keys=True).splitlines()
        for written in (sample.kept()[sample.format.number], folder / "today")
    )
    assert of_today == of_sample, (
        f"what is written as {sample.name} differs from its sample: raise its number in omdml/formats.py and run "
        f"python -m tests.formats; or, if no release has written number {sample.format.number}, {HOW} {sample.name}"
    )
