"""Sentences of error messages that many parts of omdml use."""
