"""Commands that give a model's vectors to other programs."""
