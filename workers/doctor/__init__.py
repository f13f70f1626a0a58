"""Checks of an installation: what is wrong, how bad it is, what to do."""
