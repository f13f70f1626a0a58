"""The rules of ``deploy/prometheus``, and promtool, which reads them."""

from __future__ import annotations

import subprocess

import yaml

from tests.support.processes import ROOT

RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}
RECORDED = {rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule}


def run(promtool, folder, *arguments):
    return subprocess.run([promtool, *arguments], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
