"""What judges a model: events that are held out, the guard that decides by them, and drift."""
