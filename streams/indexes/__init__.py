"""Indexes in vector databases."""
