"""How fast learners learn by themselves, without a log or a store."""
