"""Figures of RANK: metrics from rankings, on pictures of digits."""
