"""The board for Grafana, as code."""
