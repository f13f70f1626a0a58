"""The quick attacks hold; ``make attacks`` runs all of them."""

from __future__ import annotations

import pytest

from tests.fault.attacks import __main__ as table
from tests.fault.attacks.attack import Attack, Measured, attacks

# They learn for more than a minute.
SLOW = "poisoning"
QUICK = [
    pytest.param(attack, id=f"{name}: {attack.name}", marks=[pytest.mark.deep] if name == SLOW else [])
    for name, listed in attacks().items()
    for attack in listed
    if attack.quick
]


@pytest.mark.parametrize("attack", QUICK)
def test_an_attack_stays_within_its_bound(attack: Attack, tmp_path):
    measured = attack.run(tmp_path)
    assert measured.held, f"{attack.name}: {attack.bound}; measured {measured.value}"


@pytest.mark.parametrize(
    ("held", "named_limit", "expected", "code"),
    [(True, False, "held", 0), (True, True, "named limit", 0), (False, False, "BROKEN", 1), (False, True, "BROKEN", 1)],
)
def test_the_table_tells_a_named_limit_and_breaks_if_it_became_worse(
    held, named_limit, expected, code, monkeypatch, capsys
):
    attack = Attack("noise", "mAP falls by at most 0.06", lambda _: Measured("0.05", held), named_limit=named_limit)
    monkeypatch.setattr(table, "attacks", lambda: {"poisoning": [attack]})
    assert table.main([]) == code
    assert f"0.05; {expected}" in capsys.readouterr().out
