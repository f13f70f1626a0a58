"""Real servers for the tests of this folder."""
