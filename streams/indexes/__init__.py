"""Indexes of items in vector databases."""
