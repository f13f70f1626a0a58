"""Reads the metrics of a worker in this process."""

from __future__ import annotations


def read(worker, name, **labels):
    """The value of a sample of a worker's; 0 if there is none."""
    return worker.services.metrics.registry.get_sample_value(f"omdml_worker_{name}", labels) or 0.0
