"""Speed of learning."""
