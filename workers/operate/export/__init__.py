"""``omdml export``: a model's items as vectors that other programs can search."""
