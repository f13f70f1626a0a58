"""Bytes in and out: feedback logs, catalogues of items, stores of checkpoints and snapshots."""
