"""What is sent to a node: durable before it is acknowledged."""
