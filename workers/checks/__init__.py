"""What ``omdml doctor`` looks at in a service that runs: letters, reading, checkpoints, what nodes serve."""
