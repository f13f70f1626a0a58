"""Commands that archive a log, and begin models from its archive."""
