"""Servers of other programs, and what tests do with them."""
