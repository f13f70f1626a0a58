"""Versions of a model: which is live, which could be, what is in them."""
