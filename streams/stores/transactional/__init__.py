"""A whole store over any database that has transactions."""
