"""What searches cost, what they find, and what serves them."""
