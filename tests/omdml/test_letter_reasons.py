"""The list of reasons is the whole list: what the code refuses with, and nothing else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from omdml.errors import FeedbackError
from omdml.letter_reasons import REASONS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def code():
    return [
        node
        for layer in ("omdml", "streams", "workers")
        for path in (ROOT / layer).rglob("*.py")
        if path.name != "letter_reasons.py"
        for node in ast.walk(ast.parse(path.read_text()))
    ]


def test_every_reason_that_an_error_is_made_with_is_listed(code):
    calls = (node for node in code if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "FeedbackError")
    given = (keyword.value for call in calls for keyword in call.keywords if keyword.arg == "reason")
    reasons = {value.value for value in given if isinstance(value, ast.Constant)} | {FeedbackError("").reason}
    assert len(reasons) > 10
    assert reasons <= REASONS.keys()


def test_every_listed_reason_stands_somewhere_in_the_code(code):
    written = {node.value for node in code if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert REASONS.keys() <= written
