"""Helpers that several kinds of tests use."""
