"""A store of checkpoints and snapshots in a folder."""
