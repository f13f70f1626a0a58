"""Simulated people: what they know, search for and mark."""
