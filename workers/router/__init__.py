"""A router: it copies events from another topic into the feedback log, each under the name of its model."""
