"""Browsers, and what visitors do on the console's pages."""
