"""Alerts fire when they should and stay silent otherwise, name metrics that there are, and lead to a helpful page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from deploy.metrics_page import described
from tests.support.servers.rules import ALERTS, RECORDED, RULES, run

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CASES_FILE = yaml.safe_load((DEPLOY / "prometheus/rules_test.yml").read_text())
CASES = CASES_FILE["tests"]
PARTS = ["Meaning", "Impact", "Diagnosis", "What to do", "How to know that it helped"]


def test_the_rules_are_sound_and_every_case_comes_out(promtool):
    folder = DEPLOY / "prometheus"
    check = ("check", "rules", "--lint=all", "--lint-fatal", "rules.yml")
    for arguments in (check, ("test", "rules", "rules_test.yml")):
        done = run(promtool, folder, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent(alert):
    mine = {case["name"]: case["promql_expr_test"] for case in CASES if case["name"].split()[0] == alert}
    assert mine.keys() >= {f"{alert} fires", f"{alert} is silent"}
    for name, tests in mine.items():
        (test,) = tests
        assert f'alertname="{alert}"' in test["expr"]
        assert re.match(rf"{alert} (fires|is silent)\b", name)
        assert len(test["exp_samples"]) == (1 if name.startswith(f"{alert} fires") else 0)


@pytest.mark.parametrize("value", ["vector(1)", "vector(0) > 1"])
def test_cases_notice_alerts_that_fire_always_or_never(promtool, tmp_path, value):
    # These alerts need no series and have no waiting time, so one evaluation without series is enough.
    alerts = [{"alert": alert, "expr": value} for alert in ALERTS]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "broken", "rules": alerts}]}))
    cases = [
        {
            **case,
            "input_series": [],
            "promql_expr_test": [{**test, "eval_time": "1m"} for test in case["promql_expr_test"]],
        }
        for case in CASES
    ]
    (tmp_path / "rules_test.yml").write_text(yaml.safe_dump({**CASES_FILE, "tests": cases}))
    done = run(promtool, tmp_path, "test", "rules", "rules_test.yml")
    assert done.returncode != 0
    assert all(alert in done.stdout + done.stderr for alert in ALERTS)


def test_rules_name_metrics_and_label_values_that_there_are():
    metrics = described()
    allowed = {name + suffix for name in metrics for suffix in ("", "_bucket", "_count", "_sum")}
    for group in RULES["groups"]:
        for rule in group["rules"]:
            recorded = set(re.findall(r"\b[a-z_]+:[a-z_0-9:]+", rule["expr"]))
            assert recorded <= RECORDED, rule
            expression = rule["expr"]
            for name in recorded:
                expression = expression.replace(name, "")
            assert set(re.findall(r"\bomdml_\w+", expression)) <= allowed, rule
    for case in CASES:
        for series in case["input_series"]:
            name, labels = series["series"].split("{", 1)
            if name not in ("up", "process_start_time_seconds"):
                base = re.sub("_(bucket|count|sum)$", "", name) if name not in metrics else name
                mine = {label.split("`")[1] for label in metrics[base].labels} | {"namespace", "job", "instance", "le"}
                assert set(re.findall(r'(\w+)="', labels)) <= mine, series


def test_every_alert_leads_to_its_section_and_every_section_is_of_an_alert():
    text, _, _ = (DEPLOY / "RUNBOOK.md").read_text().partition("\n# Planned work\n")
    sections = {part.split("\n", 1)[0]: part for part in text.split("\n## ")[1:]}
    assert sections.keys() == ALERTS.keys()
    for name, rule in ALERTS.items():
        assert rule["annotations"]["runbook_url"] == f"RUNBOOK.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert re.findall(r"^- \*\*(.+?)\*\*: ", sections[name], re.MULTILINE) == PARTS, name


def test_the_runbook_names_real_metrics_and_expressions_that_can_be_copied(promtool, tmp_path):
    metrics = described()
    allowed = {name + suffix for name in metrics for suffix in ("", "_bucket", "_count", "_sum")}
    prose = re.sub(r"```.*?```", "", (DEPLOY / "RUNBOOK.md").read_text(), flags=re.DOTALL)
    code = re.findall(r"`([^`]+)`", prose)
    assert {name for text in code for name in re.findall(r"\b(omdml_[a-z_]+)\b(?!:)", text)} <= allowed
    expressions = [text for text in code if re.search(r"\bomdml_\w+.*[)}]", text)]
    assert len(expressions) > 8
    rules = [{"record": f"runbook:{number}", "expr": text} for number, text in enumerate(expressions)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "runbook", "rules": rules}]}))
    done = run(promtool, tmp_path, "check", "rules", "rules.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_annotations_name_labels_that_the_expression_keeps():
    for name, rule in ALERTS.items():
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert re.search(rf"by \([^)]*\b{label}\b[^)]*\)", rule["expr"]) or name in (
                "OmdmlTargetDown",
                "OmdmlMistakesRise",
            ), name
