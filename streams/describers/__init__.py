"""Vectors out of pictures and texts: how people's folders and tables become modalities of a catalogue."""
