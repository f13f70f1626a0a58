"""What a process tells those who watch it: its registry, the log's counts, the store's times."""
