"""A feedback log in files: a folder of segments, or one file that is rotated."""
