"""Checkpoints and snapshots, in folders, Redis or memory."""
