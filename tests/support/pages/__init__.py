"""Helpers of the tests of pages: read what documents show, and run their commands."""
