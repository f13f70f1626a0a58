"""Tests that kill and stop processes."""
