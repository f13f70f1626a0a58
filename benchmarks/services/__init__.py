"""Processes on real servers, and what to plan with."""
