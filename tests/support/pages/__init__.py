"""What the documents show."""
