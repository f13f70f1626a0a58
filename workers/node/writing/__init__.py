"""Writes to a node, feedback and items: durable before they are acknowledged."""
