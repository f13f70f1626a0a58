"""A feedback log in files."""
