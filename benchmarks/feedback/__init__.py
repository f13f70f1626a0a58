"""What each kind of feedback is worth, and what hostile feedback does."""
