"""Observability of every process: metrics, probes, traces, counts of log lines, times of the store."""
