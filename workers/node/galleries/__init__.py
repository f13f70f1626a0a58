"""The embedded items of a model: how they are scanned, and how a bridge answers while they are embedded again."""
