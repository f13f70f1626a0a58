"""What a request passes before its endpoint: identity, measures, checks of host, token and size."""
