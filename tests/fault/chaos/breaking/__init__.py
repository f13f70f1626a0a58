"""What breaks, a module for each kind of it."""
