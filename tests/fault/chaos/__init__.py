"""The long fault run: what breaks under a service that learns, and what is lost, doubled and waited for by that."""
