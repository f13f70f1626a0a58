"""Samples of every format (omdml/formats.py) as some release wrote them: a folder ``FORMAT-NUMBER`` each."""
