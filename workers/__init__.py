"""Processes: the learner worker, the retrieval node and the command line."""
