"""What searches call: the scan over codes, and the matching of sets."""
