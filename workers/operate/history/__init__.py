"""Begins a model from an archive of its log. Sums are made in parts, on many machines if needed, and added in order."""
