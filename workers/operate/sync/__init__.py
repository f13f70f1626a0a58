"""``omdml sync``: keeps an index in a vector database up to date."""
