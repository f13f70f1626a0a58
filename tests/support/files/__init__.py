"""Logs in files, and files that are damaged or none."""
