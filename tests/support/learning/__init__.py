"""What learners learn, and what is stored of it."""
