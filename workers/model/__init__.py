"""One model in memory: its learner, what judges it, and what may go live."""
