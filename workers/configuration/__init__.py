"""Configuration, what a model's name means, secrets, and the life of a process."""
