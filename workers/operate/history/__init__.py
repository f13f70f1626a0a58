"""A model begun from an archive of its log: sums made apart, on many machines if need be, and added up in order."""
