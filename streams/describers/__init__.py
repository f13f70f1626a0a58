"""Turns pictures and texts into vectors: people's folders and tables become modalities of a catalogue."""
