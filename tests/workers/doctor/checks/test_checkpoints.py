"""What the doctor says about models whose checkpoints cannot be read."""

from __future__ import annotations

import pytest

from omdml.streams.part_names import part_name
from omdml.streams.stores.checkpoints import how_to_mend
from omdml.workers.doctor.checks.checkpoints import waits
from tests.support.pages.documents import read

WAYS = ("omdml replay --model", "restore the store", "omdml models reset")
SECTION = read("deploy/RUNBOOK.md").partition("\n## OmdmlModelsWait\n")[2].partition("\n## ")[0]


def order(text: str) -> list[str]:
    """The ways that a text names, in the order in which it names them."""
    text = text.lower()
    return sorted((way for way in WAYS if way in text), key=text.index)


@pytest.mark.parametrize("text", [SECTION, waits("shop", "it is damaged"), how_to_mend("shop")])
def test_ways_to_mend_a_model_are_in_the_runbooks_order_everywhere(text):
    assert order(text) == list(WAYS)


@pytest.mark.parametrize("text", [waits(part_name("shop", 1), "it is damaged"), how_to_mend(part_name("shop", 1))])
def test_nobody_is_told_to_replay_a_single_part(text):
    assert order(text) == list(WAYS[1:])
