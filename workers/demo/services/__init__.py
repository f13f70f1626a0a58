"""What the demo runs on: worker, node, log and store as real processes."""
