"""The checks of an installation, a file a subject."""
