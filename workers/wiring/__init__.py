"""Makes running parts of a configuration: the one place that knows every class."""
