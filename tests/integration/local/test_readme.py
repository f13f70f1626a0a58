"""The programs in the README of the local services run as they are shown."""

import pytest

from tests.support.documents import blocks, read

PROGRAMS = [block.text for block in blocks(read("deploy/local/README.md"), "python")]


@pytest.mark.parametrize("program", PROGRAMS, ids=["single servers", "a cluster and a replica"])
def test_a_program_of_the_readme_runs(program):
    exec(program, {})
