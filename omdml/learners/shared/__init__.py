"""What learners have in common: contracts, checks, and families of one shape."""
