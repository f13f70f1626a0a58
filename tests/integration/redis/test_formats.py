"""The formats that lie in Redis: the same contract as :mod:`tests.test_formats`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.local import RedisServer
from tests.formats import contract
from tests.formats.redis_samples import samples
from tests.formats.samples import Sample

CHECKS = [
    contract.check_that_kept_samples_load,
    contract.check_that_a_newer_number_is_refused,
    contract.check_that_what_is_written_is_as_its_sample,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_that_"))
@pytest.mark.parametrize("number", [0, 1], ids=["store", "catalogue"])
def test_formats_in_redis_keep_the_contract_of_numbers(
    any_redis: RedisServer, number: int, check: Callable[[Sample, Path], None], tmp_path: Path
) -> None:
    check(samples(any_redis.url)[number], tmp_path)
