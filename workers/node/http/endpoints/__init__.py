"""What a node answers, path by path."""
