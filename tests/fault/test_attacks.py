"""The quick attacks hold; ``make attacks`` runs all of them."""

from __future__ import annotations

import pytest

from tests.fault.attacks.attack import Attack, attacks

QUICK = [
    pytest.param(attack, id=f"{name}: {attack.name}")
    for name, listed in attacks().items()
    for attack in listed
    if attack.quick
]


@pytest.mark.parametrize("attack", QUICK)
def test_an_attack_stays_within_its_bound(attack: Attack, tmp_path):
    measured = attack.run(tmp_path)
    assert measured.held, f"{attack.name}: {attack.bound}; measured {measured.value}"
