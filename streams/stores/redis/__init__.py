"""A store in Redis or Valkey."""
