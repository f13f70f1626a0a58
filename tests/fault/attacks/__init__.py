"""Attacks on a service, as outsiders tried them: each with a bound that has to hold."""
