"""Events, from bytes to comparisons of items that a model can learn."""
