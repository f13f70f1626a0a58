"""Commands that keep a log's history, and begin models from it."""
