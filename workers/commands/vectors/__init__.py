"""Commands that bring a model's vectors to other programs."""
