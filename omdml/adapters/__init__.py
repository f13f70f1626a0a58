"""Adapters with which other libraries use the learners of omdml."""
